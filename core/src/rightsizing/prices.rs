//! What requests cost: `--prices`. There are no prices of our own, and an unknown price is not zero.

mod file;

use std::collections::BTreeMap;

pub use file::PricesError;

use super::{
    glob::Glob,
    survey::{Node, Resource},
};

pub const HOURS_PER_MONTH: f64 = 730.0;
/// Bytes of a GiB.
const GIB: f64 = 1_073_741_824.0;

/// The price of resources for an hour. A missing price is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    pub cpu_core_hour: Option<f64>,
    /// A GiB of memory.
    pub memory_gib_hour: Option<f64>,
}

impl Price {
    /// What an amount in millicores or bytes costs a month; `None` if the price is unknown.
    pub fn monthly(self, resource: Resource, amount: f64) -> Option<f64> {
        let hourly = match resource {
            Resource::Cpu => amount / 1000.0 * self.cpu_core_hour?,
            Resource::Memory => amount / GIB * self.memory_gib_hour?,
        };
        Some(hourly * HOURS_PER_MONTH)
    }

    /// This price, where it is known, else the other one.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            cpu_core_hour: self.cpu_core_hour.or(other.cpu_core_hour),
            memory_gib_hour: self.memory_gib_hour.or(other.memory_gib_hour),
        }
    }
}

/// The price of resources on some nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePrice {
    /// The labels that a node has to have, all of them.
    pub labels: BTreeMap<String, Glob>,
    pub price: Price,
}

impl NodePrice {
    fn matches(&self, node: &Node) -> bool {
        self.labels.iter().all(|(label, glob)| {
            node.labels.get(label.as_str()).is_some_and(|value| glob.matches(value))
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    /// The currency, as it is printed.
    pub currency: String,
    /// The price on nodes that no other one is for.
    pub default: Price,
    /// The price on some nodes: the first that matches.
    pub nodes: Vec<NodePrice>,
    /// What the file says and is not used.
    pub remarks: Vec<String>,
}

impl Prices {
    /// Parses a file: our own format, or OpenCost's.
    pub fn parse(text: &str) -> Result<Self, PricesError> {
        file::parse(text)
    }

    pub fn on_node(&self, node: &Node) -> Price {
        let rule = self.nodes.iter().find(|rule| rule.matches(node));
        rule.map_or(self.default, |rule| rule.price.or(self.default))
    }

    /// The mean price of pods on these nodes. Pods whose node is unknown have the default price.
    pub fn of_pods(&self, names: &[Box<str>], nodes: &BTreeMap<Box<str>, Node>) -> Price {
        if names.is_empty() {
            return self.default;
        }
        let prices: Vec<Price> = names
            .iter()
            .map(|name| nodes.get(name).map_or(self.default, |node| self.on_node(node)))
            .collect();
        Price {
            cpu_core_hour: mean(prices.iter().map(|price| price.cpu_core_hour)),
            memory_gib_hour: mean(prices.iter().map(|price| price.memory_gib_hour)),
        }
    }

    /// Whether pods on these nodes have a price although it is not known which of several is theirs.
    pub fn is_assumed(&self, names: &[Box<str>], nodes: &BTreeMap<Box<str>, Node>) -> bool {
        let is_one_unknown = || names.iter().any(|name| !nodes.contains_key(name));
        !self.nodes.is_empty() && (names.is_empty() || is_one_unknown())
    }
}

/// The mean of at least one price; `None` if one of them is unknown.
fn mean(prices: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let prices: Vec<f64> = prices.collect::<Option<_>>()?;
    let first = *prices.first()?;
    // The mean of equal numbers can differ from them in the last digit.
    if prices.iter().all(|price| *price == first) {
        return Some(first);
    }
    Some(prices.iter().sum::<f64>() / prices.len() as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OURS: &str = "\
currency: EUR
cpuCoreHour: 0.03
memoryGiBHour: 0.004
nodes:
- match: {karpenter.sh/capacity-type: spot, node.kubernetes.io/instance-type: 'm6i.*'}
  cpuCoreHour: 0.01
  memoryGiBHour: 0.001
- match: {node.kubernetes.io/instance-type: '*.large'}
  cpuCoreHour: 0.05
";

    fn node(labels: &[(&str, &str)]) -> Node {
        let labels = labels.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Node { labels: labels.collect(), ..Node::default() }
    }

    fn price(cpu: f64, memory: f64) -> Price {
        Price { cpu_core_hour: Some(cpu), memory_gib_hour: Some(memory) }
    }

    #[test]
    fn a_node_has_the_price_of_its_first_match() {
        let prices = Prices::parse(OURS).expect("prices");
        let (kind, capacity) = ("node.kubernetes.io/instance-type", "karpenter.sh/capacity-type");
        for (labels, expected) in [
            (&[][..], price(0.03, 0.004)),
            (&[(kind, "m6i.large"), (capacity, "spot")], price(0.01, 0.001)),
            (&[(kind, "m6i.large"), (capacity, "on-demand")], price(0.05, 0.004)),
            (&[(kind, "r6i.xlarge"), (capacity, "spot")], price(0.03, 0.004)),
        ] {
            assert_eq!(prices.on_node(&node(labels)), expected, "{labels:?}");
        }
    }

    #[test]
    fn pods_cost_the_mean_of_their_nodes() {
        let prices = Prices::parse(OURS).expect("prices");
        let nodes: BTreeMap<Box<str>, Node> = [
            ("a".into(), node(&[("node.kubernetes.io/instance-type", "m6i.large")])),
            ("b".into(), node(&[])),
        ]
        .into();
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).into()).collect::<Vec<Box<str>>>();
        let of = |list: &[&str]| prices.of_pods(&names(list), &nodes);
        assert_eq!(of(&["a", "a", "a"]), price(0.05, 0.004));
        assert_eq!(of(&["a", "b"]), price(0.04, 0.004));
        assert_eq!(of(&["a", "gone"]), price(0.04, 0.004));
        assert_eq!(of(&[]), price(0.03, 0.004));
        let assumed = |list: &[&str]| prices.is_assumed(&names(list), &nodes);
        assert_eq!(
            [assumed(&["a", "b"]), assumed(&["a", "gone"]), assumed(&[])],
            [false, true, true]
        );
        let one = Prices { nodes: vec![], ..prices.clone() };
        assert!(!one.is_assumed(&[], &nodes), "there is only one price");
    }

    #[test]
    fn an_unknown_price_is_not_zero() {
        let partial = "currency: EUR\nnodes:\n- match: {pool: a}\n  cpuCoreHour: 0.02\n";
        let prices = Prices::parse(partial).expect("prices");
        let nodes: BTreeMap<Box<str>, Node> =
            [("a".into(), node(&[("pool", "a")])), ("b".into(), node(&[]))].into();
        let on_a = prices.of_pods(&["a".into()], &nodes);
        assert_eq!(on_a, Price { cpu_core_hour: Some(0.02), memory_gib_hour: None });
        assert_eq!(prices.of_pods(&["a".into(), "b".into()], &nodes), Price::default());
        assert_eq!(on_a.monthly(Resource::Memory, 1e9), None);
        assert_eq!(on_a.monthly(Resource::Cpu, 1000.0), Some(0.02 * 730.0));
    }

    #[test]
    fn a_month_has_730_hours() {
        let price = price(0.03, 0.004);
        let monthly = |resource, amount| price.monthly(resource, amount).expect("a price");
        assert!((monthly(Resource::Cpu, 1500.0) - 32.85).abs() < 1e-9, "1.5 x 0.03 x 730");
        assert!((monthly(Resource::Memory, 2.0 * GIB) - 5.84).abs() < 1e-9, "2 x 0.004 x 730");
    }

    proptest! {
        #[test]
        fn a_mean_is_between_its_prices(prices in prop::collection::vec(0.0..10.0_f64, 1..50)) {
            let mean = mean(prices.iter().copied().map(Some)).expect("a mean");
            let (low, high) = prices.iter().fold((f64::MAX, 0.0_f64), |(low, high), price| (low.min(*price), high.max(*price)));
            prop_assert!(low - 1e-9 <= mean && mean <= high + 1e-9);
        }
    }
}
