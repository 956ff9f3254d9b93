//! From a scale that was just read to a decision, and from that to what is written.

use kube::ResourceExt as _;
use plimsoll_core::types::{Time, VpaKey};
use tokio::time::Instant;

use super::{
    super::replicas::Sight,
    Role,
    look::{Came, Next},
    rows::Shown,
    seat::Seat,
};
use crate::{
    act::Unwritten,
    metrics::LookStep,
    observe::{scale::FreshScale, selector::Selector},
};
use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    scaling::Scale,
    types::compat::Compat,
    watermark::{
        Decision, Memory, Question, Rules, Setting, Source,
        booked::settle,
        conditions,
        outcome::{Made, UNWRITTEN, Writing},
        rules::target_of,
    },
};

/// All that a decision hangs on but the status.
struct Facts<'a> {
    rules: &'a Rules,
    setting: Setting<'a>,
    sources: &'a [Source],
    blocked: Option<&'a str>,
    /// What its status means now: a change that was booked and never made counts for nothing.
    settled: WatermarkPodAutoscalerStatus,
    now: Time,
}

impl Role {
    /// Decides about an object, and does it. What was decided by a watch is decided anew where the scale that is about to be
    /// written says something else.
    #[expect(clippy::too_many_arguments, reason = "each is another thing that was read")]
    pub(super) async fn decide(
        &self,
        key: &VpaKey,
        seat: &mut Seat,
        filled: &WatermarkPodAutoscalerSpec,
        mut sight: Sight,
        blocked: Option<&str>,
        shown: &mut Shown,
        now: Time,
    ) -> Came {
        let (mut rules, fixes) = (Rules::of(filled).with(seat.options), self.config.fixes);
        rules.dry_run |= self.config.dry_run.is_some();
        let target = target_of(&key.namespace, filled);
        let readiness = rules.readiness(target, now, fixes);
        let memory = seat.memory();
        loop {
            let told = sight.told();
            let scale = Scale { wanted: told.wanted, current: told.current };
            let selector = told.selector.as_ref().map_or("", Selector::as_str).to_owned();
            let begun = Instant::now();
            let pods = self.pods_of(key, seat, filled, told).await;
            self.metrics.step(LookStep::Pods, begun.elapsed());
            let begun = Instant::now();
            let sources = match blocked {
                Some(_) => Vec::new(),
                None => self.ask(key, seat, filled, &rules, scale, &readiness, &pods).await,
            };
            if blocked.is_none() {
                self.metrics.step(LookStep::Metrics, begun.elapsed());
            }
            let oldest = self.config.oldest_value.map(|age| now.earlier(age));
            let setting = Setting {
                rules: &rules,
                readiness,
                selector: &selector,
                pods: &pods,
                scale,
                oldest,
                fixes,
            };
            let settled = match self.config.compat {
                Compat::Plimsoll => settle(&seat.status(), scale, &rules),
                Compat::Upstream => seat.status(),
            };
            let facts = Facts { rules: &rules, setting, sources: &sources, blocked, settled, now };
            let decision = self.judge(&facts, &memory);
            let writes =
                decision.change.is_some() && !filled.dry_run && self.config.dry_run.is_none();
            let fresh = match sight {
                _ if !writes => None,
                Sight::Asked(fresh) => Some(fresh),
                Sight::Watched(of, told) => match self.fresh_scale(seat, &of).await {
                    Ok(fresh) if fresh.told.says_the_same(&told) => Some(Box::new(fresh)),
                    Ok(fresh) => {
                        sight = Sight::Asked(Box::new(fresh));
                        continue;
                    }
                    Err(why) => return self.without_scale(seat, shown, &why, now).await,
                },
            };
            for row in &decision.rows {
                self.metrics.count_answer(row.kind.word(), row.outcome.as_ref().map(drop));
            }
            seat.memory = Some(decision.memory.clone());
            let effective = shown.effective;
            shown.decision(&decision, &rules, fixes);
            let outcome = if decision.combined.is_ok() { "decided" } else { "held" };
            seat.failures = 0;
            let begun = Instant::now();
            if !self.carry_out(seat, filled, fresh.as_deref(), &facts, &decision, shown).await {
                shown.effective = effective;
            }
            self.metrics.step(LookStep::Write, begun.elapsed());
            return (outcome, Next::Period);
        }
    }

    fn judge(&self, facts: &Facts<'_>, memory: &Memory) -> Decision {
        let question = Question {
            rules: facts.rules,
            setting: facts.setting,
            sources: facts.sources,
            blocked: facts.blocked,
            status: &facts.settled,
            memory,
            now: facts.now,
            fixes: self.config.fixes,
        };
        question.decide()
    }

    /// Makes the change, if there is one, and tells of it. Ours is booked before it is made: whoever leads next sees
    /// that somebody was about to. `fresh` is the scale that is written back; a change without one is only said. Answers
    /// whether replicas are as decided, as far as anybody knows.
    async fn carry_out(
        &self,
        seat: &mut Seat,
        filled: &WatermarkPodAutoscalerSpec,
        fresh: Option<&FreshScale>,
        facts: &Facts<'_>,
        decision: &Decision,
        shown: &mut Shown,
    ) -> bool {
        let now = facts.now;
        let namespace = seat.object.namespace().unwrap_or_default();
        let writing = Writing {
            spec: filled,
            namespace: &namespace,
            compat: self.config.compat,
            skips_idle_events: self.config.skips_idle_events,
            now,
            fixes: self.config.fixes,
        };
        let settled = &facts.settled;
        let last = settled.last_scale_time.as_ref().map(conditions::time);
        // What somebody else wrote meanwhile stays, but for what a change that was never made had taken.
        let base = |before: &WatermarkPodAutoscalerStatus| {
            let mut base = before.clone();
            base.last_scale_time.clone_from(&settled.last_scale_time);
            base.scaling_events_count = settled.scaling_events_count;
            base
        };
        let made = match (&decision.change, fresh) {
            (None, _) => Made::Nothing,
            (Some(_), _) if filled.dry_run => Made::DryRun,
            (Some(_), None) => Made::Done,
            (Some(change), Some(fresh)) => {
                if self.config.compat == Compat::Plimsoll {
                    let booked = self
                        .keep_status(seat, now, |before| {
                            writing.status(&base(before), decision, &Made::Booked)
                        })
                        .await;
                    if let Err(why) = booked {
                        // What cannot be booked is not done.
                        self.not_written(seat, &why, UNWRITTEN);
                        return false;
                    }
                }
                match self.put_scale(seat, fresh, change.to).await {
                    Ok(()) => {
                        Self::count_moved(seat, shown, fresh.told.wanted, change.to);
                        Made::Done
                    }
                    // It is not ours to say any more: the next look of whoever leads settles it.
                    Err(Unwritten::Fenced) if self.config.compat == Compat::Plimsoll => {
                        return false;
                    }
                    Err(Unwritten::Unanswered(why) | Unwritten::Unsure(why))
                        if self.config.compat == Compat::Plimsoll =>
                    {
                        self.tell_unsure(seat, why, now).await;
                        return false;
                    }
                    Err(why) => Made::Refused(why.to_string()),
                }
            }
        };
        let written = self
            .keep_status(seat, now, |before| writing.status(&base(before), decision, &made))
            .await;
        if let Err(why) = written {
            self.not_written(seat, &why, Writing::unwritten(decision, &made));
        }
        let events = writing.events(decision, &made, last);
        self.tell_all(seat, events);
        if let (Made::Done, Some(change)) = (&made, &decision.change) {
            let (name, from, to) = (seat.object.name_any(), decision.scale.wanted, change.to);
            let reason = &change.reason;
            match fresh {
                Some(_) => {
                    tracing::info!(namespace, name, from, to, reason, "replicas were changed");
                }
                None => {
                    tracing::info!(namespace, name, from, to, reason, "replicas would be changed");
                }
            }
        }
        !matches!(made, Made::Refused(_))
    }

    fn count_moved(seat: &mut Seat, shown: &mut Shown, from: i32, to: i32) {
        let (up, down) = seat.moved.unwrap_or_default();
        let by = u64::from(from.abs_diff(to));
        seat.moved = Some(if to > from { (up + by, down) } else { (up, down + by) });
        shown.moved = seat.moved;
    }
}
