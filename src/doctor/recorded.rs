//! What recording rules have made of usage, and what they would be good for.

use plimsoll_storage::prometheus::schema::Recorded;

use super::{
    Facts,
    diagnose::{finding, grouped},
    facts::Asked,
    report::{Evidence, Finding, Level, Topic},
};
use crate::look::span;

/// With more containers than this, history is long to read, and the rules are worth their evaluation.
const MANY: u64 = 2000;

pub(super) fn recorded(facts: &Facts) -> Option<Finding> {
    let Asked { evidence, answer } = facts.recorded.as_ref()?;
    let (code, level, message) = match answer {
        Ok(recorded) => judge(facts, *recorded)?,
        Err(why) => {
            let message = format!(
                "Whether usage is recorded by rules could not be seen, so it is not read from there: {why}"
            );
            ("recorded_unknown", Level::Ok, message)
        }
    };
    Some(told(code, level, message, evidence))
}

fn told(code: &str, level: Level, message: String, evidence: &[Evidence]) -> Finding {
    finding(Topic::History, code, level, message, evidence)
}

fn judge(facts: &Facts, recorded: Recorded) -> Option<(&'static str, Level, String)> {
    let wanted = span(facts.wanted);
    match recorded {
        Recorded::Whole => {
            let message = format!(
                "Usage is recorded by rules, as far back as {wanted}: history is read from that, which is cheaper."
            );
            Some(("recorded", Level::Ok, message))
        }
        Recorded::Short { at, containers, of } if at >= facts.at => {
            let message = format!(
                "Recording rules have {} of {} containers: check that they are of the job and have the labels of these \
                 series. History is read from the series themselves.",
                grouped(&containers.to_string()),
                grouped(&of.to_string())
            );
            Some(("recorded_part", Level::Warning, message))
        }
        Recorded::Short { .. } => {
            let message = format!(
                "Usage is recorded by rules, but not {wanted} ago: history is read from the series themselves until it \
                 is. `promtool tsdb create-blocks-from rules` makes what is missing."
            );
            Some(("recorded_young", Level::Ok, message))
        }
        Recorded::Absent => {
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
