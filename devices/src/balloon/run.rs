//! Memory to give back, in as few pieces as can be: each is a system call.

use vm_memory::{Address, GuestAddress};

/// What a huge page of the host takes.
const HUGE_PAGE: u64 = 2 << 20;

/// A piece of guest memory without a gap. Its end is an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: GuestAddress,
    /// In bytes.
    pub(super) length: u64,
}

impl Run {
    fn end(&self) -> u64 {
        self.start.0 + self.length
    }

    /// How many places for huge pages it covers only a part of.
    pub(super) fn partial_huge_pages(&self) -> u64 {
        let (start, end) = (self.start.0, self.end());
        let cut = |at: u64| !at.is_multiple_of(HUGE_PAGE);
        let is_one = cut(start) && cut(end) && start / HUGE_PAGE == end / HUGE_PAGE;
        if is_one { 1 } else { u64::from(cut(start)) + u64::from(cut(end)) }
    }
}

/// The same memory by rising address, every byte once, and what touches in one piece.
pub(super) fn merge(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable_by_key(|run| run.start);
    runs.dedup_by(|next, run| {
        let touches = next.start.raw_value() <= run.end();
        if touches {
            run.length = run.end().max(next.end()) - run.start.0;
        }
        touches
    });
    runs
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn run(start: u64, length: u64) -> Run {
        Run { start: GuestAddress(start), length }
    }

    #[test]
    fn what_touches_or_overlaps_is_one_run() {
        let runs = vec![run(8, 4), run(0, 4), run(4, 2), run(9, 1), run(20, 5), run(8, 4)];
        assert_eq!(merge(runs), [run(0, 6), run(8, 4), run(20, 5)]);
    }

    #[test]
    fn runs_know_which_huge_pages_they_cut() {
        let cut = |start, end| run(start, end - start).partial_huge_pages();
        assert_eq!(cut(0, HUGE_PAGE), 0);
        assert_eq!(cut(HUGE_PAGE, 5 * HUGE_PAGE), 0);
        assert_eq!(cut(4096, 8192), 1);
        assert_eq!(cut(0, 4096), 1);
        assert_eq!(cut(4096, HUGE_PAGE), 1);
        assert_eq!(cut(4096, HUGE_PAGE + 4096), 2);
        assert_eq!(cut(HUGE_PAGE - 4096, 4 * HUGE_PAGE + 4096), 2);
    }

    proptest! {
        #[test]
        fn merged_runs_are_the_same_memory_with_gaps_between(
            pieces in prop::collection::vec((0_u64..200, 1_u64..20), 0..30),
        ) {
            let bytes = |runs: &[Run]| -> BTreeSet<u64> {
                runs.iter().flat_map(|run| run.start.0..run.end()).collect()
            };
            let runs: Vec<Run> = pieces.iter().map(|(start, length)| run(*start, *length)).collect();
            let merged = merge(runs.clone());
            prop_assert_eq!(bytes(&merged), bytes(&runs));
            prop_assert!(merged.windows(2).all(|pair| pair[0].end() < pair[1].start.0));
        }
    }
}
