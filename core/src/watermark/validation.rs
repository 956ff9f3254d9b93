//! Whether an object can be followed at all, in upstream's order and words.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::conditions::{ConditionType, ConditionUpdate};
use crate::{
    api::wpa::{MetricSpec, WatermarkPodAutoscalerSpec},
    scaling::metric_value::display_name,
    types::quantity::Quantity,
};

/// The most metrics of an object that is followed.
pub const MAX_METRICS: usize = 50;
/// The longest kind or name of an object in Kubernetes, in bytes.
const MAX_OBJECT_NAME_BYTES: usize = 253;
/// The longest name of a metric, in bytes.
const MAX_METRIC_NAME_BYTES: usize = 1024;
/// The longest address of a recommender, and the most that it is told in settings, in bytes.
const MAX_SETTINGS_BYTES: usize = 4096;
/// The longest text otherwise, in bytes.
const MAX_TEXT_BYTES: usize = 16 * 1024;

/// What is wrong with an object: the first thing that is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// It is for nothing.
    #[error(
        "the Spec.ScaleTargetRef should be populated, currently Kind:{kind} and/or Name:{name} are not set properly"
    )]
    Target {
        /// The kind that it names.
        kind: String,
        /// The name that it names.
        name: String,
    },
    /// Its bounds cross, or one is missing.
    #[error(
        "watermark pod autoscaler requires the minimum number of replicas to be configured and inferior to the maximum"
    )]
    Bounds,
    /// Its tolerance is no share.
    #[error(
        "tolerance should be set as a quantity between 0 and 1, currently set to : {0}, which is {percent:.0}%",
        percent = .0.milli_value() as f64 / 10.0
    )]
    Tolerance(Quantity),
    /// A percentage is missing.
    #[error(
        "scaleuplimitfactor and scaledownlimitfactor can't be nil, make sure the WPA spec is defaulted"
    )]
    MissingLimitFactors,
    /// It would add fewer than none.
    #[error(
        "scaleuplimitfactor should be set as a positive quantity, currently set to : {0}, which could yield a \
         {percent:.0}% growth",
        percent = .0.milli_value() as f64 / 1000.0
    )]
    UpscaleLimitFactor(Quantity),
    /// It would remove all, or fewer than none.
    #[error(
        "scaledownlimitfactor should be set as a quantity between 0 and 100 (exc.), currently set to : {0}, which could \
         yield a {percent:.0}% decrease",
        percent = .0.milli_value() as f64 / 1000.0
    )]
    DownscaleLimitFactor(Quantity),
    /// It has two masters.
    #[error("recommender and metrics can't be set at the same time, please choose one")]
    MetricsAndRecommender,
    /// A metric says nothing of its kind.
    #[error("metric.{kind} is nil while metric.Type is '{kind}'")]
    MissingMetricBlock {
        /// Its kind.
        kind: String,
    },
    /// A metric has no mark.
    #[error("watermarks are not set correctly, removing the WPA {0} from the Reconciler")]
    MissingWatermarks(String),
    /// A metric selects nothing, not even everything.
    #[error("missing Labels for the {kind} metric {name}")]
    MissingSelector {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The marks of a metric cross.
    #[error(
        "low WaterMark of {kind} metric {name} has to be strictly inferior to the High Watermark"
    )]
    WatermarksCross {
        /// Its kind.
        kind: String,
        /// Its name, with its selector.
        name: String,
    },
    /// A metric is of no known kind.
    #[error("incorrect metric.Type: '{0}'")]
    UnknownMetricType(String),
    /// It has too many metrics. To follow some of them would be to scale by a part of what was asked for.
    #[error(
        "{0} metrics are set, and no object follows more than {MAX_METRICS}: nothing is scaled until there are fewer"
    )]
    TooManyMetrics(usize),
    /// A text is longer than any that is meant.
    #[error(
        "{what} has {bytes} bytes, and no object with more than {most} is followed: shorten it"
    )]
    TooLong {
        /// The field that it is in.
        field: &'static str,
        /// What it is.
        what: &'static str,
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        most: usize,
    },
}

impl SpecError {
    /// What is to be said of the object.
    pub fn condition(&self) -> ConditionUpdate {
        let message = format!("Invalid WPA specification: {self}");
        ConditionUpdate::new(ConditionType::AbleToScale, false, "FailedSpecCheck", message)
    }

    /// Where in the object it is wrong.
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

/// The parts of a metric that all kinds have.
#[derive(Clone, Copy, Debug)]
pub struct MetricBlock<'a> {
    /// What it is called.
    pub name: &'a str,
    /// Which series, or pods, count.
    pub selector: Option<&'a LabelSelector>,
    /// Below this, replicas are removed.
    pub low_watermark: Option<Quantity>,
    /// Above this, replicas are added.
    pub high_watermark: Option<Quantity>,
}

impl MetricBlock<'_> {
    /// The labels that have to match.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let labels = self.selector.and_then(|selector| selector.match_labels.as_ref());
        labels.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// What a metric says of its kind.
pub fn metric_block(metric: &MetricSpec) -> Result<MetricBlock<'_>, SpecError> {
    let none = || SpecError::MissingMetricBlock { kind: metric.kind.clone() };
    match metric.kind.as_str() {
        "External" => metric.external.as_ref().ok_or_else(none).map(|it| MetricBlock {
            name: &it.metric_name,
            selector: it.metric_selector.as_ref(),
            low_watermark: it.low_watermark,
            high_watermark: it.high_watermark,
        }),
        "Resource" => metric.resource.as_ref().ok_or_else(none).map(|it| MetricBlock {
            name: &it.name,
            selector: it.metric_selector.as_ref(),
            low_watermark: it.low_watermark,
            high_watermark: it.high_watermark,
        }),
        "ContainerResource" => {
            metric.container_resource.as_ref().ok_or_else(none).map(|it| MetricBlock {
                name: &it.name,
                selector: it.metric_selector.as_ref(),
                low_watermark: it.low_watermark,
                high_watermark: it.high_watermark,
            })
        }
        other => Err(SpecError::UnknownMetricType(other.to_owned())),
    }
}

/// Whether what its author wrote is of a size that is worked with each period: names are labels of series and parts of
/// messages, and each metric is a request.
fn check_sizes(spec: &WatermarkPodAutoscalerSpec) -> Result<(), SpecError> {
    let fits = |field, what, bytes: usize, most| {
        if bytes <= most { Ok(()) } else { Err(SpecError::TooLong { field, what, bytes, most }) }
    };
    let target = &spec.scale_target_ref;
    for (what, text) in [("its kind", &target.kind), ("its name", &target.name)] {
        fits("spec.scaleTargetRef", what, text.len(), MAX_OBJECT_NAME_BYTES)?;
    }
    if spec.metrics.len() > MAX_METRICS {
        return Err(SpecError::TooManyMetrics(spec.metrics.len()));
    }
    for metric in &spec.metrics {
        fits("spec.metrics", "the type of a metric", metric.kind.len(), MAX_OBJECT_NAME_BYTES)?;
        let Ok(found) = metric_block(metric) else { continue };
        fits("spec.metrics", "the name of a metric", found.name.len(), MAX_METRIC_NAME_BYTES)?;
        let selector = found.selector.map_or(0, selector_bytes);
        fits("spec.metrics", "the selector of a metric", selector, MAX_TEXT_BYTES)?;
    }
    if let Some(recommender) = &spec.recommender {
        let settings = recommender.settings.iter();
        let bytes: usize = settings.map(|(key, value)| key.len() + value.len()).sum();
        let name = recommender.target_type.len() + bytes;
        fits("spec.recommender", "targetType and settings", name, MAX_SETTINGS_BYTES)?;
        fits("spec.recommender", "url", recommender.url.len(), MAX_SETTINGS_BYTES)?;
    }
    Ok(())
}

/// The bytes of all keys and values of a selector.
fn selector_bytes(selector: &LabelSelector) -> usize {
    let labels = selector.match_labels.iter().flatten();
    let labels: usize = labels.map(|(key, value)| key.len() + value.len()).sum();
    let expressions = selector.match_expressions.iter().flatten();
    let expressions = expressions.map(|one| {
        let values: usize = one.values.iter().flatten().map(String::len).sum();
        one.key.len() + one.operator.len() + values
    });
    labels + expressions.sum::<usize>()
}

/// Looks at an object that is filled in. `object` is its namespace and name.
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
    let found = metric_block(metric)?;
    let (kind, name) = (metric.kind.clone(), found.name.to_owned());
    if found.low_watermark.is_none() && found.high_watermark.is_none() {
        return Err(SpecError::MissingWatermarks(object.to_owned()));
    }
    if found.selector.is_none() {
        return Err(SpecError::MissingSelector { kind, name });
    }
    match (found.low_watermark, found.high_watermark) {
        (Some(low), Some(high)) if high.milli_value() < low.milli_value() => {
            let name = display_name(found.name, found.labels());
            Err(SpecError::WatermarksCross { kind, name })
        }
        _ => Ok(()),
    }
}
