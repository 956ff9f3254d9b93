//! The result of a recommender's response: vectors R1 to R8 and X28 to X30.

use plimsoll_core::{
    scaling::{
        MetricError, MetricSourceType, MetricValue,
        Position::{self, Above, Below, Inside},
        RecommendResponse,
    },
    watermark::MetricInput,
};
use serde_json::json;

use super::{DecisionCase, both_modes, source};

fn recommender_metric(replicas: i32, lower: i32, upper: i32) -> MetricInput {
    let advice = RecommendResponse {
        replicas,
        lower_bound: lower,
        upper_bound: upper,
        observed_target: 0.5,
        reason: String::new(),
    };
    let value = Ok(MetricValue::Recommendation(advice));
    MetricInput {
        kind: MetricSourceType::Recommender,
        ..source("recommender{targetType:fake}", value, (1, 2))
    }
}

fn proposals(wanted: i32, converge: &str, source: &MetricInput) -> Vec<(i32, Position, i64)> {
    let of = |fixes| {
        let fields = json!({"convergeTowardsWatermark": converge, "tolerateZero": true});
        let case = DecisionCase::new(fixes, fields, wanted, vec![source.clone()]);
        let rows = case.setting().combine(&case.sources).0;
        let proposal = rows[0].result.as_ref().expect("value is known");
        (proposal.replicas, proposal.position, proposal.utilization)
    };
    both_modes().map(of).to_vec()
}

#[test]
fn a_recommendation_is_followed_and_its_bounds_give_the_position() {
    for (name, wanted, converge, advice, expected) in [
        ("R1", 3, "", (3, 2, 6), (3, Inside)),
        ("R2", 1, "", (5, 2, 6), (5, Above)),
        ("R3", 10, "", (2, 2, 6), (2, Below)),
        ("R4", 40, "", (31, 27, 53), (31, Inside)),
        ("R6", 18, "", (18, 10, 28), (18, Inside)),
        ("R7", 18, "", (25, 20, 30), (25, Above)),
        ("R8", 18, "", (12, 10, 15), (12, Below)),
        ("X28", 10, "highwatermark", (10, 0, 0), (9, Inside)),
        ("X28", 10, "lowwatermark", (10, 0, 0), (10, Inside)),
        ("X29", 10, "highwatermark", (10, 8, 12), (9, Inside)),
        ("X29", 10, "lowwatermark", (10, 8, 12), (11, Inside)),
        ("X30", 10, "", (0, 0, 0), (0, Below)),
    ] {
        let (replicas, position) = expected;
        let found = proposals(wanted, converge, &recommender_metric(advice.0, advice.1, advice.2));
        assert_eq!(found, vec![(replicas, position, 500); 2], "{name}");
    }
}

#[test]
fn a_recommender_error_includes_its_address() {
    for fixes in both_modes() {
        let url = "http://recommender:8080";
        let mut silent = recommender_metric(1, 1, 1);
        silent.address = Some(url.to_owned());
        silent.value = Err(MetricError::Failed("recommender failed".to_owned()));
        let case = DecisionCase::new(fixes, json!({}), 3, vec![silent]);
        let why = case.setting().combine(&case.sources).1.expect_err("R5 and K5");
        assert_eq!(
            why.to_string(),
            "failed to get the recommendation from http://recommender:8080: recommender failed"
        );
    }
}

#[test]
fn a_recommendation_of_zero_is_an_error_unless_tolerated() {
    for (fixes, expected) in both_modes().into_iter().zip([7, 10]) {
        let mut case = DecisionCase::new(fixes, json!({}), 10, vec![recommender_metric(0, 0, 0)]);
        case.pods.truncate(7);
        let combined = case.setting().combine(&case.sources).1.expect("value is known");
        assert_eq!((combined.replicas, combined.is_stable()), (expected, true));
    }
}
