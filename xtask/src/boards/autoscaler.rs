//! Panels that the boards of all replica autoscalers have.

use serde_json::{Value, json};

use super::dashboard::Variable;
use super::panel::{Kind, Panel};
use super::query::{now, over_time};

/// The kind of autoscaler that a board shows: `hpa` or `wpa`, as in the label `kind` and in the selectors of queries.
#[derive(Clone, Copy, Debug)]
pub(super) struct AutoscalerKind(pub &'static str);

/// The properties of a line: its color and more.
pub(super) fn line(color: &str, more: &[(&'static str, Value)]) -> Vec<(&'static str, Value)> {
    let color = ("color", json!({"mode": "fixed", "fixedColor": color}));
    std::iter::once(color).chain(more.iter().cloned()).collect()
}

impl AutoscalerKind {
    /// A query with the selectors of one object in place of `@one`.
    fn query(self, text: &str) -> String {
        text.replace("@one", &format!("@{}", self.0))
    }

    /// The variables that select an object and one of its metrics.
    pub fn variables(self, label: &'static str) -> Vec<Variable> {
        let kind = self.0;
        let of = |family: &str, more: &str, label: &str| {
            format!(
                r#"label_values({family}{{cluster=~"$cluster", kind="{kind}"{more}}}, {label})"#
            )
        };
        let (namespace, name) = (r#", namespace=~"$namespace""#, r#", name=~"$name""#);
        vec![
            Variable::one("namespace", "Namespace", &of("plimsoll_object_info", "", "namespace")),
            Variable::one("name", label, &of("plimsoll_object_info", namespace, "name")),
            Variable::one(
                "metric",
                "Metric",
                &of("plimsoll_high", &format!("{namespace}{name}"), "metric"),
            ),
        ]
    }

    /// The measured value of the selected metric, its target or a bound.
    pub fn figure(self, family: &str) -> String {
        self.query(&format!(r#"max({family}{{@one, metric=~"$metric"}})"#))
    }

    /// Where the decided replicas are between the bounds.
    pub fn range_used(self, description: &str) -> Panel {
        Panel::new(Kind::Gauge, "Replica range used", description, "percentunit")
            .size(4, 4)
            .field("min", 0)
            .field("max", 1)
            .thresholds("green", &[(0.9, "orange"), (1.0, "red")])
            .target(now(
                &self.query(
                    "(max(plimsoll_effective{@one}) - max(plimsoll_min_replicas{@one})) / \
                     (max(plimsoll_max_replicas{@one}) - max(plimsoll_min_replicas{@one}))",
                ),
                "replica range used",
            ))
    }

    /// Proposals, the decision, the bounds, and more lines by name, color and query.
    pub fn replicas(self, description: &str, more: &[(&str, &str, &str)]) -> Panel {
        let mut panel =
            Panel::new(Kind::TimeSeries, "Proposed and desired replicas", description, "none")
                .size(16, 9)
                .steps()
                .field("decimals", 0)
                .field("min", 0)
                .only("minReplicas", &line("light-blue", &[]))
                .only("maxReplicas", &line("light-red", &[]))
                .only("desired", &line("text", &[("custom.lineWidth", json!(3))]));
        for (name, color, _) in more {
            panel = panel.only(name, &line(color, &[]));
        }
        let of_object = |text: &str, legend: &str| over_time(&self.query(text), legend);
        panel = panel
            .target(of_object(
                "max by (metric) (plimsoll_proposal{@one})",
                "proposed by {{metric}}",
            ))
            .target(of_object("max(plimsoll_effective{@one})", "desired"));
        for (name, _, expression) in more {
            panel = panel.target(over_time(expression, name));
        }
        panel
            .target(of_object("max(plimsoll_min_replicas{@one})", "minReplicas"))
            .target(of_object("max(plimsoll_max_replicas{@one})", "maxReplicas"))
    }

    /// Why replicas are not those that were proposed. One reason is the healthy state: its name and the text for it.
    pub fn restrictions(self, description: &str, (healthy, text): (&str, &str)) -> Panel {
        Panel::new(Kind::Timeline, "Restrictions", description, "none")
            .size(16, 9)
            .empty("No restrictions")
            .words(&[("1", "active", "orange")])
            .only(
                healthy,
                &[(
                    "mappings",
                    json!([{
                        "type": "value",
                        "options": {"1": {"color": "green", "index": 0, "text": text}},
                    }]),
                )],
            )
            .target(over_time(
                &self.query("max by (reason) (plimsoll_restricted_scaling{@one} == 1)"),
                "{{reason}}",
            ))
    }

    /// The remaining time of each transition, by the largest or the smallest of the replicas that export it.
    pub fn countdowns(self, title: &str, description: &str, aggregate: &str) -> Panel {
        Panel::new(Kind::TimeSeries, title, description, "s")
            .size(8, 9)
            .field("min", 0)
            .field("custom.fillOpacity", 15)
            .target(over_time(
                &self.query(&format!(
                    "{aggregate} by (transition) (plimsoll_transition_countdown_seconds{{@one}})"
                )),
                "{{transition}}",
            ))
    }
}
