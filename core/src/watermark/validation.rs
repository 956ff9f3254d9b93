//! Validates the spec of an object, in upstream's order and with upstream's messages.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::conditions::{ConditionType, ConditionUpdate};
use crate::{
    api::wpa::{MetricSpec, WatermarkPodAutoscalerSpec},
    scaling::metric_source::display_name,
    types::quantity::Quantity,
};

/// The maximum number of metrics of an object.
pub const MAX_METRICS: usize = 50;
/// The longest kind or name of a target, in bytes.
const MAX_OBJECT_NAME_BYTES: usize = 253;
/// The longest name of a metric, in bytes.
const MAX_METRIC_NAME_BYTES: usize = 1024;
/// The longest URL of a recommender, and the maximum size of its settings, in bytes.
const MAX_SETTINGS_BYTES: usize = 4096;
/// The longest selector of a metric, in bytes.
const MAX_TEXT_BYTES: usize = 16 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error(
        "the Spec.ScaleTargetRef should be populated, currently Kind:{kind} and/or Name:{name} are not set properly"
    )]
    Target { kind: String, name: String },
    #[error(
        "watermark pod autoscaler requires the minimum number of replicas to be configured and inferior to the maximum"
    )]
    Bounds,
    #[error(
        "tolerance should be set as a quantity between 0 and 1, currently set to : {0}, which is {percent:.0}%",
        percent = .0.milli_value() as f64 / 10.0
    )]
    Tolerance(Quantity),
    #[error(
        "scaleuplimitfactor and scaledownlimitfactor can't be nil, make sure the WPA spec is defaulted"
    )]
    MissingLimitFactors,
    /// The scale-up limit factor is negative.
    #[error(
        "scaleuplimitfactor should be set as a positive quantity, currently set to : {0}, which could yield a \
         {percent:.0}% growth",
        percent = .0.milli_value() as f64 / 1000.0
    )]
    UpscaleLimitFactor(Quantity),
    /// The scale-down limit factor is not in the range 0 to 100.
    #[error(
        "scaledownlimitfactor should be set as a quantity between 0 and 100 (exc.), currently set to : {0}, which could \
         yield a {percent:.0}% decrease",
        percent = .0.milli_value() as f64 / 1000.0
    )]
    DownscaleLimitFactor(Quantity),
    #[error("recommender and metrics can't be set at the same time, please choose one")]
    MetricsAndRecommender,
    #[error("metric.{kind} is nil while metric.Type is '{kind}'")]
    MissingMetricBlock { kind: String },
    #[error("watermarks are not set correctly, removing the WPA {0} from the Reconciler")]
    MissingWatermarks(String),
    /// A metric has no selector, not even an empty one.
    #[error("missing Labels for the {kind} metric {name}")]
    MissingSelector { kind: String, name: String },
    #[error(
        "low WaterMark of {kind} metric {name} has to be strictly inferior to the High Watermark"
    )]
    WatermarksCross { kind: String, name: String },
    #[error("incorrect metric.Type: '{0}'")]
    UnknownMetricType(String),
    /// There are too many metrics. None is used, because using only some would scale by an incomplete spec.
    #[error(
        "{0} metrics are set, at most {MAX_METRICS} are supported: scaling is disabled until some are removed"
    )]
    TooManyMetrics(usize),
    #[error("{what} has {bytes} bytes, at most {most} are allowed")]
    TooLong { field: &'static str, what: &'static str, bytes: usize, most: usize },
}

impl SpecError {
    pub fn condition(&self) -> ConditionUpdate {
        let message = format!("Invalid WPA specification: {self}");
        ConditionUpdate::new(ConditionType::AbleToScale, false, "FailedSpecCheck", message)
    }

    /// The path of the invalid field.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Target { .. } => "spec.scaleTargetRef",
            Self::Bounds => "spec.minReplicas",
            Self::Tolerance(_) => "spec.tolerance",
            Self::MissingLimitFactors => "spec",
            Self::UpscaleLimitFactor(_) => "spec.scaleUpLimitFactor",
            Self::DownscaleLimitFactor(_) => "spec.scaleDownLimitFactor",
            Self::MetricsAndRecommender => "spec.recommender",
            Self::TooLong { field, .. } => field,
            Self::TooManyMetrics(_)
            | Self::MissingMetricBlock { .. }
            | Self::MissingWatermarks(_)
            | Self::MissingSelector { .. }
            | Self::WatermarksCross { .. }
            | Self::UnknownMetricType(_) => "spec.metrics",
        }
    }
}

/// The fields that all metric types have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricBlock<'a> {
    pub name: &'a str,
    /// Selects the series or pods.
    pub selector: Option<&'a LabelSelector>,
    /// Below this, replicas are removed.
    pub low_watermark: Option<Quantity>,
    /// Above this, replicas are added.
    pub high_watermark: Option<Quantity>,
}

impl MetricBlock<'_> {
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let labels = self.selector.and_then(|selector| selector.match_labels.as_ref());
        labels.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

pub fn metric_block(metric: &MetricSpec) -> Result<MetricBlock<'_>, SpecError> {
    let fields = match metric.kind.as_str() {
        "External" => metric.external.as_ref().map(|block| {
            (&block.metric_name, &block.metric_selector, block.low_watermark, block.high_watermark)
        }),
        "Resource" => metric.resource.as_ref().map(|block| {
            (&block.name, &block.metric_selector, block.low_watermark, block.high_watermark)
        }),
        "ContainerResource" => metric.container_resource.as_ref().map(|block| {
            (&block.name, &block.metric_selector, block.low_watermark, block.high_watermark)
        }),
        other => return Err(SpecError::UnknownMetricType(other.to_owned())),
    };
    let missing_block = || SpecError::MissingMetricBlock { kind: metric.kind.clone() };
    let (name, selector, low_watermark, high_watermark) = fields.ok_or_else(missing_block)?;
    Ok(MetricBlock { name, selector: selector.as_ref(), low_watermark, high_watermark })
}

/// Checks the sizes of user input, because it is processed in each period: names become labels of series and parts of
/// messages, and each metric is a request.
fn check_sizes(spec: &WatermarkPodAutoscalerSpec) -> Result<(), SpecError> {
    let check_size = |field, what, bytes: usize, most| {
        if bytes <= most { Ok(()) } else { Err(SpecError::TooLong { field, what, bytes, most }) }
    };
    let target = &spec.scale_target_ref;
    for (what, text) in [("the target's kind", &target.kind), ("the target's name", &target.name)] {
        check_size("spec.scaleTargetRef", what, text.len(), MAX_OBJECT_NAME_BYTES)?;
    }
    if spec.metrics.len() > MAX_METRICS {
        return Err(SpecError::TooManyMetrics(spec.metrics.len()));
    }
    for metric in &spec.metrics {
        let check_size = |what, bytes, most| check_size("spec.metrics", what, bytes, most);
        check_size("the type of a metric", metric.kind.len(), MAX_OBJECT_NAME_BYTES)?;
        let Ok(block) = metric_block(metric) else { continue };
        check_size("the name of a metric", block.name.len(), MAX_METRIC_NAME_BYTES)?;
        let selector = block.selector.map_or(0, selector_bytes);
        check_size("the selector of a metric", selector, MAX_TEXT_BYTES)?;
    }
    if let Some(recommender) = &spec.recommender {
        let settings = recommender.settings.iter();
        let bytes: usize = settings.map(|(key, value)| key.len() + value.len()).sum();
        let name = recommender.target_type.len() + bytes;
        check_size("spec.recommender", "targetType and settings", name, MAX_SETTINGS_BYTES)?;
        check_size("spec.recommender", "url", recommender.url.len(), MAX_SETTINGS_BYTES)?;
    }
    Ok(())
}

/// The total size of the keys and values of a selector, in bytes.
fn selector_bytes(selector: &LabelSelector) -> usize {
    let labels = selector.match_labels.iter().flatten();
    let labels: usize = labels.map(|(key, value)| key.len() + value.len()).sum();
    let expressions = selector.match_expressions.iter().flatten();
    let expressions = expressions.map(|requirement| {
        let values: usize = requirement.values.iter().flatten().map(String::len).sum();
        requirement.key.len() + requirement.operator.len() + values
    });
    labels + expressions.sum::<usize>()
}

/// Validates a spec with defaults applied. `object` is the namespace and name of its object.
pub fn validate(spec: &WatermarkPodAutoscalerSpec, object: &str) -> Result<(), SpecError> {
    check_sizes(spec)?;
    let target = &spec.scale_target_ref;
    if target.kind.is_empty() || target.name.is_empty() {
        return Err(SpecError::Target { kind: target.kind.clone(), name: target.name.clone() });
    }
    if spec.min_replicas.is_none_or(|min| spec.max_replicas < min) {
        return Err(SpecError::Bounds);
    }
    if let Some(tolerance) = spec.tolerance
        && !(0..=1000).contains(&tolerance.milli_value())
    {
        return Err(SpecError::Tolerance(tolerance));
    }
    let (Some(up), Some(down)) = (spec.scale_up_limit_factor, spec.scale_down_limit_factor) else {
        return Err(SpecError::MissingLimitFactors);
    };
    if up.is_negative() {
        return Err(SpecError::UpscaleLimitFactor(up));
    }
    if !(0..100_000).contains(&down.milli_value()) {
        return Err(SpecError::DownscaleLimitFactor(down));
    }
    if spec.recommender.is_some() && !spec.metrics.is_empty() {
        return Err(SpecError::MetricsAndRecommender);
    }
    spec.metrics.iter().try_for_each(|metric| validate_metric(metric, object))
}

fn validate_metric(metric: &MetricSpec, object: &str) -> Result<(), SpecError> {
    let block = metric_block(metric)?;
    let (kind, name) = (metric.kind.clone(), block.name.to_owned());
    if block.low_watermark.is_none() && block.high_watermark.is_none() {
        return Err(SpecError::MissingWatermarks(object.to_owned()));
    }
    if block.selector.is_none() {
        return Err(SpecError::MissingSelector { kind, name });
    }
    match (block.low_watermark, block.high_watermark) {
        (Some(low), Some(high)) if high.milli_value() < low.milli_value() => {
            let name = display_name(block.name, block.labels());
            Err(SpecError::WatermarksCross { kind, name })
        }
        _ => Ok(()),
    }
}
