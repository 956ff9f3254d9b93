//! Findings about recording rules for usage.

use plimsoll_storage::prometheus::schema::RecordingRules;

use super::{
    ProbeResults,
    diagnose::{finding, grouped},
    probe_results::ProbeAnswer,
    report::{Evidence, Finding, Level, Topic},
};
use crate::report::style::format_span;

/// With more containers than this, reading history is slow, and recording rules are worth their cost.
const MANY: u64 = 2000;

pub(super) fn recording_rules_finding(facts: &ProbeResults) -> Option<Finding> {
    let ProbeAnswer { evidence, answer } = facts.recording_rules.as_ref()?;
    let (code, level, message) = match answer {
        Ok(recorded) => assess_rules(facts, *recorded)?,
        Err(why) => {
            let message =
                format!("Cannot check for recording rules for usage, so they are not used: {why}");
            ("recorded_unknown", Level::Ok, message)
        }
    };
    Some(history_finding(code, level, message, evidence))
}

fn history_finding(code: &str, level: Level, message: String, evidence: &[Evidence]) -> Finding {
    finding(Topic::History, code, level, message, evidence)
}

fn assess_rules(
    facts: &ProbeResults,
    recorded: RecordingRules,
) -> Option<(&'static str, Level, String)> {
    let wanted = format_span(facts.wanted_history);
    match recorded {
        RecordingRules::Complete => {
            let message = format!(
                "Recording rules cover usage for {wanted}: history is read from them, which is cheaper."
            );
            Some(("recorded", Level::Ok, message))
        }
        RecordingRules::Incomplete { at, containers, total_containers: total }
            if at >= facts.at =>
        {
            let message = format!(
                "Recording rules cover {} of {} containers: check that they select the same job and keep the same labels. \
                 History is read from the raw series.",
                grouped(&containers.to_string()),
                grouped(&total.to_string())
            );
            Some(("recorded_part", Level::Warning, message))
        }
        RecordingRules::Incomplete { .. } => {
            let message = format!(
                "Recording rules for usage exist, but not yet for {wanted}: until then, history is read from the raw \
                 series. `promtool tsdb create-blocks-from rules` backfills them."
            );
            Some(("recorded_young", Level::Ok, message))
        }
        RecordingRules::Absent => {
            let schema = facts.schema.answer.as_ref().ok()?;
            let containers = schema.usage.containers;
            let message = format!(
                "With {} containers, recording rules would make history much cheaper to read: \
                 deploy/recommender/rules.yaml contains them.",
                grouped(&containers.to_string())
            );
            (containers >= MANY).then_some(("recorded_none", Level::Ok, message))
        }
    }
}
