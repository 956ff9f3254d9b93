//! The files of `--prices`: our own format, and the one of OpenCost, whose numbers are texts.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{NodePrice, Price, Prices};
use crate::rightsizing::{glob::Glob, thresholds::first_line};

/// The largest file that is read.
const MAX_FILE_BYTES: usize = 1 << 20;
/// The most prices for nodes.
const MAX_NODE_PRICES: usize = 1000;
/// The most characters of a currency.
const MAX_CURRENCY: usize = 16;
/// The currency of a file without one: that of OpenCost's defaults.
const DEFAULT_CURRENCY: &str = "USD";
/// The labels of spot nodes, by who creates them.
const SPOT_LABELS: [(&str, &str); 5] = [
    ("karpenter.sh/capacity-type", "spot"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("cloud.google.com/gke-spot", "true"),
    ("cloud.google.com/gke-preemptible", "true"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
];

/// A file of prices that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PricesError {
    #[error("the file has {0} bytes; at most {MAX_FILE_BYTES} are read")]
    TooLarge(usize),
    /// It is not YAML, or has another structure.
    #[error(
        "{0}; expected `cpuCoreHour`, `memoryGiBHour`, and optionally `currency` and `nodes`, or a file of OpenCost with `CPU` \
         and `RAM`"
    )]
    Invalid(String),
    /// A price is no price.
    #[error("{field} is {value}; use a number of at least 0")]
    Price {
        /// The path of the field.
        field: String,
        value: String,
    },
    #[error(
        "there is no price in the file: set `cpuCoreHour` or `memoryGiBHour`, or `CPU` or `RAM` in a file of OpenCost"
    )]
    Empty,
    /// The currency cannot be printed.
    #[error(
        "currency is {0:?}; use at most {MAX_CURRENCY} characters without control characters, such as EUR"
    )]
    Currency(String),
    /// There are too many prices for nodes.
    #[error("there are {0} entries in `nodes`; at most {MAX_NODE_PRICES} are read")]
    TooManyNodes(usize),
    /// A price for nodes matches all of them.
    #[error(
        "nodes[{0}].match is empty; name a label, or use the prices outside of `nodes` for all other nodes"
    )]
    EmptyMatch(usize),
}

/// Our own format.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PricesFile {
    currency: Option<String>,
    cpu_core_hour: Option<f64>,
    #[serde(rename = "memoryGiBHour")]
    memory_gib_hour: Option<f64>,
    #[serde(default)]
    nodes: Vec<NodeEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeEntry {
    #[serde(rename = "match")]
    labels: BTreeMap<String, Glob>,
    cpu_core_hour: Option<f64>,
    #[serde(rename = "memoryGiBHour")]
    memory_gib_hour: Option<f64>,
}

pub(super) fn parse(text: &str) -> Result<Prices, PricesError> {
    if text.len() > MAX_FILE_BYTES {
        return Err(PricesError::TooLarge(text.len()));
    }
    let invalid = |message: String| PricesError::Invalid(first_line(&message));
    let value: Value = serde_saphyr::from_str(text).map_err(|error| invalid(error.to_string()))?;
    let prices = match &value {
        Value::Object(fields) if ["CPU", "RAM"].iter().any(|name| fields.contains_key(*name)) => {
            read_opencost(fields)?
        }
        // Parsed again, for errors with the line.
        Value::Object(_) => {
            read_own(serde_saphyr::from_str(text).map_err(|error| invalid(error.to_string()))?)?
        }
        _ => return Err(invalid("the file is not a mapping".to_owned())),
    };
    let length = prices.currency.chars().count();
    if length == 0 || length > MAX_CURRENCY || prices.currency.chars().any(char::is_control) {
        return Err(PricesError::Currency(prices.currency));
    }
    let has_price = |price: &Price| *price != Price::default();
    if !has_price(&prices.default) && !prices.nodes.iter().any(|rule| has_price(&rule.price)) {
        return Err(PricesError::Empty);
    }
    Ok(prices)
}

fn read_own(file: PricesFile) -> Result<Prices, PricesError> {
    if file.nodes.len() > MAX_NODE_PRICES {
        return Err(PricesError::TooManyNodes(file.nodes.len()));
    }
    let price = |prefix: &str, cpu: Option<f64>, memory: Option<f64>| {
        for (name, amount) in [("cpuCoreHour", cpu), ("memoryGiBHour", memory)] {
            if let Some(amount) = amount.filter(|amount| !is_price(*amount)) {
                let (field, value) = (format!("{prefix}{name}"), amount.to_string());
                return Err(PricesError::Price { field, value });
            }
        }
        Ok(Price { cpu_core_hour: cpu, memory_gib_hour: memory })
    };
    let mut nodes = Vec::with_capacity(file.nodes.len());
    for (index, entry) in file.nodes.into_iter().enumerate() {
        if entry.labels.is_empty() {
            return Err(PricesError::EmptyMatch(index));
        }
        let prefix = format!("nodes[{index}].");
        let price = price(&prefix, entry.cpu_core_hour, entry.memory_gib_hour)?;
        nodes.push(NodePrice { labels: entry.labels, price });
    }
    Ok(Prices {
        currency: file.currency.unwrap_or_else(|| DEFAULT_CURRENCY.to_owned()),
        default: price("", file.cpu_core_hour, file.memory_gib_hour)?,
        nodes,
        remarks: Vec::new(),
    })
}

/// Reads OpenCost's file. It has many fields for other costs, which are not requests.
fn read_opencost(fields: &Map<String, Value>) -> Result<Prices, PricesError> {
    let price = |field: &str| -> Result<Option<f64>, PricesError> {
        let invalid = |value: String| PricesError::Price { field: field.to_owned(), value };
        let amount = match fields.get(field) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => return Ok(None),
            Some(Value::String(text)) => {
                text.trim().parse().map_err(|_| invalid(format!("{text:?}")))?
            }
            Some(Value::Number(number)) => number.as_f64().unwrap_or(f64::NAN),
            Some(other) => return Err(invalid(other.to_string())),
        };
        if is_price(amount) { Ok(Some(amount)) } else { Err(invalid(amount.to_string())) }
    };
    let text = |field: &str| {
        let text = fields.get(field).and_then(Value::as_str).map(str::trim);
        text.filter(|text| !text.is_empty())
    };
    let default = Price { cpu_core_hour: price("CPU")?, memory_gib_hour: price("RAM")? };
    let spot = Price { cpu_core_hour: price("spotCPU")?, memory_gib_hour: price("spotRAM")? };
    let labels: Vec<(&str, &str)> = match (text("spotLabel"), text("spotLabelValue")) {
        (Some(label), Some(value)) => vec![(label, value)],
        _ => SPOT_LABELS.to_vec(),
    };
    let on_spot = |(label, value): (&str, &str)| NodePrice {
        labels: BTreeMap::from([(label.to_owned(), Glob::new(value))]),
        price: spot,
    };
    let has_spot = spot != Price::default();
    let discounts = ["discount", "negotiatedDiscount"].into_iter().filter(|field| {
        text(field).is_some_and(|text| text.trim_end_matches('%').trim().parse::<f64>() != Ok(0.0))
    });
    Ok(Prices {
        currency: text("currencyCode").unwrap_or(DEFAULT_CURRENCY).to_owned(),
        default,
        nodes: if has_spot { labels.into_iter().map(on_spot).collect() } else { Vec::new() },
        remarks: discounts
            .map(|field| format!("prices: `{field}` of the file of OpenCost is not applied"))
            .collect(),
    })
}

fn is_price(amount: f64) -> bool {
    amount.is_finite() && amount >= 0.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rightsizing::survey::Node;

    fn price(cpu: f64, memory: f64) -> Price {
        Price { cpu_core_hour: Some(cpu), memory_gib_hour: Some(memory) }
    }

    /// The fields of OpenCost's configs/default.json.
    const OPENCOST: &str = r#"{
    "provider": "custom",
    "description": "Default prices based on GCP us-central1",
    "CPU": "0.031611",
    "spotCPU": "0.006655",
    "RAM": "0.004237",
    "spotRAM": "0.000892",
    "GPU": "0.95",
    "storage": "0.00005479452",
    "zoneNetworkEgress": "0.01",
    "firstFiveForwardingRulesCost": "0.0"
}"#;

    #[test]
    fn files_of_opencost_are_read_as_they_are() {
        let prices = parse(OPENCOST).expect("prices");
        assert_eq!(prices.currency, "USD");
        assert_eq!(prices.default, price(0.031_611, 0.004_237));
        for (label, value, expected) in [
            ("karpenter.sh/capacity-type", "spot", price(0.006_655, 0.000_892)),
            ("karpenter.sh/capacity-type", "on-demand", price(0.031_611, 0.004_237)),
            ("eks.amazonaws.com/capacityType", "SPOT", price(0.006_655, 0.000_892)),
            ("cloud.google.com/gke-spot", "true", price(0.006_655, 0.000_892)),
        ] {
            let labels = [(label.into(), value.into())].into();
            let node = Node { labels, ..Node::default() };
            assert_eq!(prices.on_node(&node), expected, "{label}={value}");
        }
        assert_eq!(prices.remarks, [""; 0]);
    }

    #[test]
    fn fields_of_opencost_that_matter() {
        let text = r#"{"CPU": 0.04, "RAM": "", "spotCPU": "0.01", "spotLabel": "lifecycle", "spotLabelValue": "Ec2Spot",
            "currencyCode": "EUR", "discount": "30%", "negotiatedDiscount": "0%"}"#;
        let prices = parse(text).expect("prices");
        assert_eq!(prices.currency, "EUR");
        assert_eq!(prices.default, Price { cpu_core_hour: Some(0.04), memory_gib_hour: None });
        assert_eq!(prices.nodes.len(), 1);
        let labels = [("lifecycle".into(), "Ec2Spot".into())].into();
        let spot = prices.on_node(&Node { labels, ..Node::default() });
        assert_eq!(spot, Price { cpu_core_hour: Some(0.01), memory_gib_hour: None });
        assert_eq!(prices.remarks, ["prices: `discount` of the file of OpenCost is not applied"]);
    }

    #[test]
    fn four_lines_are_enough() {
        let text = "currency: EUR\ncpuCoreHour: 0.03\nmemoryGiBHour: 0.004\nnodes: []\n";
        let expected = Prices {
            currency: "EUR".to_owned(),
            default: price(0.03, 0.004),
            nodes: Vec::new(),
            remarks: Vec::new(),
        };
        assert_eq!(parse(text), Ok(expected));
        assert_eq!(parse("cpuCoreHour: 0").expect("free").default.cpu_core_hour, Some(0.0));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_one_line() {
        let expected = "; expected `cpuCoreHour`, `memoryGiBHour`, and optionally `currency` and `nodes`, or a file of OpenCost \
                        with `CPU` and `RAM`";
        for (text, message) in [
            ("cpuCoreHour: -1", "cpuCoreHour is -1; use a number of at least 0".to_owned()),
            (
                "nodes: [{match: {a: b}, memoryGiBHour: -0.5}]",
                "nodes[0].memoryGiBHour is -0.5; use a number of at least 0".to_owned(),
            ),
            ("CPU: free", "CPU is \"free\"; use a number of at least 0".to_owned()),
            ("RAM: [1]", "RAM is [1]; use a number of at least 0".to_owned()),
            ("CPU: '-0.5'", "CPU is -0.5; use a number of at least 0".to_owned()),
            ("- 1", format!("the file is not a mapping{expected}")),
            (
                "currency: EUR",
                "there is no price in the file: set `cpuCoreHour` or `memoryGiBHour`, or `CPU` or `RAM` in a file of OpenCost"
                    .to_owned(),
            ),
            (
                "{currency: \"E\\tR\", cpuCoreHour: 1}",
                "currency is \"E\\tR\"; use at most 16 characters without control characters, such as EUR".to_owned(),
            ),
            (
                "{cpuCoreHour: 1, nodes: [{match: {}, cpuCoreHour: 2}]}",
                "nodes[0].match is empty; name a label, or use the prices outside of `nodes` for all other nodes".to_owned(),
            ),
        ] {
            assert_eq!(parse(text).expect_err(text).to_string(), message);
        }
        for text in [
            "",
            "cpu: 1",
            "memoryGiBHour: .nan",
            "cpuCoreHour: .inf",
            "cpuCoreHour: {",
            "cpuCoreHour: cheap",
            "{cpuCoreHour: 1, nodes: [{cpuCoreHour: 2}]}",
        ] {
            let message = parse(text).expect_err(text).to_string();
            assert!(message.ends_with(expected), "{message}");
            assert_eq!(message.lines().count(), 1, "{message}");
        }
        let many = format!("cpuCoreHour: 1\nnodes:\n{}", "- match: {a: b}\n".repeat(1001));
        assert_eq!(parse(&many), Err(PricesError::TooManyNodes(1001)));
        let large = "#".repeat(MAX_FILE_BYTES + 1);
        assert_eq!(parse(&large), Err(PricesError::TooLarge(large.len())));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-zCPURAM:{}\\[\\]0-9 .\\n&*!'-]{0,80}") {
            let _ = parse(&text);
        }
    }
}
