//! Figures of a few runs.

/// What a list of numbers comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// How many there are.
    pub count: usize,
    /// The smallest.
    pub min: f64,
    /// A quarter of them is below.
    pub lower_quartile: f64,
    /// The middle.
    pub median: f64,
    /// A quarter of them is above.
    pub upper_quartile: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// None for no numbers.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Self {
            count: sorted.len(),
            min,
            lower_quartile: quantile(&sorted, 1),
            median: quantile(&sorted, 2),
            upper_quartile: quantile(&sorted, 3),
            max,
        })
    }
}

/// `quarters` quarters of the way through `sorted`, which is not empty; between two of them in proportion.
fn quantile(sorted: &[f64], quarters: usize) -> f64 {
    let way = (sorted.len() - 1) * quarters;
    let (index, rest) = (way / 4, way % 4);
    let here = sorted[index];
    let next = sorted.get(index + 1).copied().unwrap_or(here);
    let part = rest as f64 / 4.0;
    here + (next - here) * part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_summary() {
        assert_eq!(Summary::of([]), None);
    }

    #[test]
    fn one_number_is_all_of_its_figures() {
        let summary = Summary::of([3.0]).unwrap();
        assert_eq!((summary.min, summary.median, summary.max), (3.0, 3.0, 3.0));
        assert_eq!((summary.lower_quartile, summary.upper_quartile), (3.0, 3.0));
    }

    #[test]
    fn order_does_not_matter_and_an_even_number_is_halved() {
        let summary = Summary::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((summary.count, summary.min, summary.max), (4, 1.0, 4.0));
        assert_eq!(summary.median, 2.5);
        assert_eq!((summary.lower_quartile, summary.upper_quartile), (1.75, 3.25));
    }

    #[test]
    fn one_outlier_does_not_move_the_median() {
        assert_eq!(Summary::of([5.0, 5.1, 90.0]).unwrap().median, 5.1);
    }
}
