//! The forms of `plimsoll recommend` as other programs read them: JSON by its schema, every form by the public API.

use plimsoll::report::{
    recommend::{self, Form, FormOptions},
    style::{Glyphs, Style},
};
use plimsoll_core::{
    history::OomBump,
    recommender::throttling::Throttled,
    rightsizing::{
        evidence::EvidenceGap,
        report::{Level, NoPatchReason, Report, RiskReason, TemplateAmounts},
        survey::AutoscalerRef,
    },
    types::Time,
};
use serde_json::{Value, json};
use strum::IntoEnumIterator as _;

use crate::schema::{faults, schema};

const SAMPLE: &str = include_str!("data/recommend.json");

fn sample() -> Report {
    serde_json::from_str(SAMPLE).expect("a report")
}

fn style() -> Style {
    Style { width: 96, colour: false, glyphs: Glyphs::Unicode, command: "plimsoll".to_owned() }
}

fn rendered(form: Form, report: &Report) -> String {
    recommend::render(form, report, &style(), &FormOptions::default()).expect("a text form")
}

fn printed(report: &Report) -> Value {
    serde_json::from_str(&rendered(Form::Json, report)).expect("JSON")
}

#[test]
fn json_follows_the_schema() {
    let schema = schema("recommend.v1.json");
    let report = printed(&sample());
    assert_eq!(faults(&schema, &report), Vec::<String>::new());
    assert_eq!(report, serde_json::from_str::<Value>(SAMPLE).expect("JSON"), "fields are lost");
    let mut wrong = report.clone();
    wrong["totals"]["risk"]["high"] = "2".into();
    wrong["workloads"][0]["containers"][0]["resources"][0]["target"] = "1650m".into();
    assert_eq!(faults(&schema, &wrong).len(), 2, "the schema does not describe amounts");
    let mut more = report;
    more["workloads"][0]["surprise"] = 1.into();
    assert_eq!(faults(&schema, &more).len(), 1, "a new field must be written into the schema");
}

#[test]
fn the_schema_has_every_code() {
    let schema = schema("recommend.v1.json");
    let codes = |definition: &str| &schema["$defs"][definition]["enum"];
    let levels: Vec<String> = Level::iter().map(|level| level.to_string()).collect();
    assert_eq!(*codes("level"), json!(levels));
    let gaps: Vec<String> = EvidenceGap::iter().map(|gap| gap.to_string()).collect();
    assert_eq!(*codes("gap"), json!(gaps));
    let reasons: Vec<String> = NoPatchReason::iter().map(|reason| reason.to_string()).collect();
    let container = &schema["$defs"]["container"]["properties"];
    assert_eq!(container["noPatch"]["enum"], json!(reasons));
}

#[test]
fn every_field_that_may_be_absent_is_in_the_schema() {
    let mut report = sample();
    report.strategy = Some("krr-simple".to_owned());
    let workload = &mut report.workloads[0];
    workload.cluster = Some("prod".to_owned());
    let (kind, name) = ("WatermarkPodAutoscaler".into(), "web".into());
    workload.scaled_by = vec![AutoscalerRef { kind, name }];
    let container = &mut workload.containers[0];
    container.last_oom_kill = Some(Time::EPOCH);
    container.no_patch = Some(NoPatchReason::Injected);
    container.runtime = Some(
        serde_json::from_value(json!({"runtime": "go", "knownBy": "GOMEMLIMIT=1GiB",
            "memoryLimit": 1 << 30, "followsLimit": false}))
        .expect("a hint"),
    );
    let resource = &mut container.resources[0];
    resource.unsaid = Some(EvidenceGap::Unread);
    resource.template = Some(TemplateAmounts { request: Some(500), limit: Some(1000) });
    resource.change.held = Some("an autoscaler".to_owned());
    resource.risk_reasons = vec![
        RiskReason::OomKilled { kills: 1, last: Some(Time::EPOCH) },
        RiskReason::PeakNearLimit { share: 1.2 },
        RiskReason::Throttled { share: 0.5 },
        RiskReason::UsageAboveRequest { share: 0.5 },
        RiskReason::BelowNeed,
        RiskReason::NoRequest,
    ];
    let chain = resource.explanation.as_mut().expect("an explanation");
    chain.upper_bound_factor = Some(2.0);
    chain.bump = Some(OomBump { at: Time::EPOCH, base: 1, counted: 2 });
    chain.throttled = Some(Throttled { share: 0.5, target: Some(0.1), factor: 1.4 });
    chain.target.largest_replica = Some(1.5);
    assert_eq!(faults(&schema("recommend.v1.json"), &printed(&report)), Vec::<String>::new());
}

#[test]
fn every_text_form_is_rendered_and_the_others_are_refused() {
    let others = [Form::Html, Form::Kustomize, Form::Strategic, Form::HelmValues, Form::Vpa];
    for form in Form::iter() {
        let result = recommend::render(form, &sample(), &style(), &FormOptions::default());
        match result {
            Ok(text) => assert!(!others.contains(&form) && text.ends_with('\n'), "{form}"),
            Err(error) => {
                assert!(others.contains(&form), "{form}: {error}");
                assert_eq!(error.to_string(), format!("{form} is not a text form"));
            }
        }
    }
}
