//! What recording rules have made of usage, and what they would be good for.

use plimsoll_storage::prometheus::schema::RecordingRules;

use super::{
    ProbeResults,
    diagnose::{finding, grouped},
    probe_results::ProbeAnswer,
    report::{Evidence, Finding, Level, Topic},
};
use crate::report::style::format_span;

/// With more containers than this, history is long to read, and the rules are worth their evaluation.
const MANY: u64 = 2000;

pub(super) fn recording_rules_finding(facts: &ProbeResults) -> Option<Finding> {
    let ProbeAnswer { evidence, answer } = facts.recording_rules.as_ref()?;
    let (code, level, message) = match answer {
        Ok(recorded) => assess_rules(facts, *recorded)?,
        Err(why) => {
            let message = format!(
                "Whether usage is recorded by rules could not be seen, so it is not read from there: {why}"
            );
            ("recorded_unknown", Level::Ok, message)
        }
    };
    Some(pods_finding(code, level, message, evidence))
}

fn pods_finding(code: &str, level: Level, message: String, evidence: &[Evidence]) -> Finding {
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
                "Usage is recorded by rules, as far back as {wanted}: history is read from that, which is cheaper."
            );
            Some(("recorded", Level::Ok, message))
        }
        RecordingRules::Incomplete { at, containers, total_containers: of } if at >= facts.at => {
            let message = format!(
                "Recording rules have {} of {} containers: check that they are of the job and have the labels of these \
                 series. History is read from the series themselves.",
                grouped(&containers.to_string()),
                grouped(&of.to_string())
            );
            Some(("recorded_part", Level::Warning, message))
        }
        RecordingRules::Incomplete { .. } => {
            let message = format!(
                "Usage is recorded by rules, but not {wanted} ago: history is read from the series themselves until it \
                 is. `promtool tsdb create-blocks-from rules` makes what is missing."
            );
            Some(("recorded_young", Level::Ok, message))
        }
        RecordingRules::Absent => {
            let schema = facts.schema.answer.as_ref().ok()?;
            let containers = schema.usage.containers;
            let message = format!(
                "With {} containers history would be much cheaper to read if rules recorded usage: \
                 deploy/recommender/rules.yaml has them.",
                grouped(&containers.to_string())
            );
            (containers >= MANY).then_some(("recorded_none", Level::Ok, message))
        }
    }
}
