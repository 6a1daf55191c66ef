//! The queries of the dashboard in `resources/dashboards`.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The dashboard as Grafana reads it.
pub const DASHBOARD: &str = include_str!("../../../resources/dashboards/corten.json");

/// What Grafana puts in the place of its variables: everything, over a time in which there were some scrapes.
const VARIABLES: [(&str, &str); 3] =
    [("$namespace", ".*"), ("$node", ".*"), ("$__rate_interval", "1m")];

/// One query of a panel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Title of the panel.
    pub panel: String,
    /// What is asked of Prometheus.
    pub expression: String,
}

/// All queries, without variables.
pub fn queries() -> Result<Vec<Query>> {
    let dashboard: Value = serde_json::from_str(DASHBOARD)?;
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().context("no panels")? {
        let title = panel["title"].as_str().context("a panel has no title")?;
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression =
                target["expr"].as_str().with_context(|| format!("{title}: no query"))?;
            let expression = VARIABLES
                .iter()
                .fold(expression.to_owned(), |text, (name, value)| text.replace(name, value));
            ensure!(!expression.contains('$'), "{title}: nothing fills {expression}");
            queries.push(Query { panel: title.to_owned(), expression });
        }
    }
    Ok(queries)
}

/// Names of metrics in a query. A histogram's are those of its parts.
pub fn metrics(expression: &str) -> impl Iterator<Item = &str> {
    expression
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| ["kubevirt_", "corten_", "process_"].iter().any(|it| word.starts_with(it)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Tests of operator and node agent compare it with what they tell.
    const DOCUMENTED: &str = include_str!("../../../docs/metrics.md");

    fn row(name: &str) -> Option<&'static str> {
        DOCUMENTED.lines().find(|line| line.starts_with(&format!("| `{name}` |")))
    }

    #[test]
    fn every_metric_that_is_asked_for_is_documented_with_its_kind() {
        for Query { panel, expression } in queries().unwrap() {
            let names: Vec<_> = metrics(&expression).collect();
            assert!(!names.is_empty(), "{panel}: {expression}");
            for name in names {
                let parts = ["_bucket", "_sum", "_count"];
                let whole = parts.iter().find_map(|part| name.strip_suffix(part));
                let histogram = whole.and_then(row).is_some_and(|row| row.contains("| histogram"));
                assert!(row(name).is_some() || histogram, "{panel}: there is no {name}");
            }
        }
    }

    #[test]
    fn rates_are_of_what_only_grows() {
        for Query { panel, expression } in queries().unwrap() {
            for of in expression.split("rate(").skip(1) {
                let name = metrics(of).next().unwrap();
                let grows = row(name).is_none_or(|row| row.contains("| counter"));
                assert!(grows, "{panel}: a rate of the gauge {name}");
            }
        }
    }

    #[test]
    fn panels_have_numbers_of_their_own_and_lie_beside_each_other() {
        let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let mut numbers = BTreeSet::new();
        let mut places = BTreeSet::new();
        for panel in panels {
            assert!(numbers.insert(panel["id"].as_u64().unwrap()), "{panel}");
            let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
            assert!(at("x") + at("w") <= 24, "{panel}");
            for place in (at("x")..at("x") + at("w"))
                .flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
            {
                assert!(places.insert(place), "{} lies on another panel", panel["title"]);
            }
        }
    }

    #[test]
    fn names_are_found_between_functions_and_labels() {
        let query = "sum by (node) (rate(corten_a_total{node=~\".*\"}[1m])) / kubevirt_b";
        assert_eq!(metrics(query).collect::<Vec<_>>(), ["corten_a_total", "kubevirt_b"]);
    }
}
