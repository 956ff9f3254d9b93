//! The signatures of the PromQL functions of Prometheus. Other servers have more functions.

use super::ValueType;

/// The signature of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// The types of the parameters.
    pub(super) parameters: &'static [ValueType],
    /// The number of optional parameters.
    pub(super) optional: usize,
    /// Whether the last parameter may be repeated.
    pub(super) repeats: bool,
    /// The result type.
    pub(super) returns: ValueType,
}

use ValueType::{InstantVector as V, RangeVector as R, Scalar as S, StringLiteral as T};

const fn returning_vector(parameters: &'static [ValueType]) -> Function {
    Function { parameters, optional: 0, repeats: false, returns: V }
}

/// The signature of the Prometheus function with this name, compatible with all releases.
pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "abs" | "absent" | "acos" | "acosh" | "asin" | "asinh" | "atan" | "atanh" | "ceil"
        | "cos" | "cosh" | "deg" | "exp" | "floor" | "histogram_avg" | "histogram_count"
        | "histogram_stddev" | "histogram_stdvar" | "histogram_sum" | "ln" | "log10" | "log2"
        | "rad" | "sgn" | "sin" | "sinh" | "sort" | "sort_desc" | "sqrt" | "tan" | "tanh"
        | "timestamp" => returning_vector(&[V]),
        "absent_over_time"
        | "avg_over_time"
        | "changes"
        | "count_over_time"
        | "delta"
        | "deriv"
        | "first_over_time"
        | "idelta"
        | "increase"
        | "irate"
        | "last_over_time"
        | "mad_over_time"
        | "max_over_time"
        | "min_over_time"
        | "present_over_time"
        | "rate"
        | "resets"
        | "stddev_over_time"
        | "stdvar_over_time"
        | "sum_over_time"
        | "ts_of_first_over_time"
        | "ts_of_last_over_time"
        | "ts_of_max_over_time"
        | "ts_of_min_over_time" => returning_vector(&[R]),
        "clamp" => returning_vector(&[V, S, S]),
        "clamp_max" | "clamp_min" => returning_vector(&[V, S]),
        "day_of_month" | "day_of_week" | "day_of_year" | "days_in_month" | "hour" | "minute"
        | "month" | "year" => Function { optional: 1, ..returning_vector(&[V]) },
        "double_exponential_smoothing" | "holt_winters" => returning_vector(&[R, S, S]),
        "histogram_fraction" => returning_vector(&[S, S, V]),
        "histogram_quantile" => returning_vector(&[S, V]),
        "label_join" => Function { repeats: true, ..returning_vector(&[V, T, T, T]) },
        "label_replace" => returning_vector(&[V, T, T, T, T]),
        "pi" | "time" => Function { returns: S, ..returning_vector(&[]) },
        "predict_linear" => returning_vector(&[R, S]),
        "quantile_over_time" => returning_vector(&[S, R]),
        "round" => Function { optional: 1, ..returning_vector(&[V, S]) },
        "scalar" => Function { returns: S, ..returning_vector(&[V]) },
        "sort_by_label" | "sort_by_label_desc" => {
            Function { repeats: true, ..returning_vector(&[V, T]) }
        }
        "vector" => returning_vector(&[S]),
        _ => return None,
    })
}

/// The parameters of the aggregation operator with this name.
pub(super) fn fold(name: &str) -> Option<&'static [ValueType]> {
    Some(match name {
        "avg" | "count" | "group" | "max" | "min" | "stddev" | "stdvar" | "sum" => &[V],
        "bottomk" | "limit_ratio" | "limitk" | "quantile" | "topk" => &[S, V],
        "count_values" => &[T, V],
        _ => return None,
    })
}
