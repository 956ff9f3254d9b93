//! From a scale that was just read to a decision, and from that to what is written.

use kube::ResourceExt as _;
use plimsoll_storage::{Time, VpaKey};

use super::{
    Role,
    book::Seat,
    look::{Came, Next},
    rows::Shown,
};
use crate::{
    act::Unwritten,
    api::wpa::{WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    compat::Compat,
    observe::{scale::FreshScale, scaled_pod::KeptPod, selector::Selector},
    watermark::{
        Decision, Pod, Question, Readiness, Rules, Scale, Setting, Source,
        booked::settle,
        conditions,
        outcome::{Made, Writing},
        pods::{Named, is_owner_by_name},
    },
};

/// Whoever sets this to `true` trusts the selector of the scale alone.
const SKIP_OWNER_CHECK: &str = "wpa.datadoghq.com/skip-owner-check";

/// How often replicas are tried to be written at once.
const TRIES: usize = 5;

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
    /// Decides about an object, and does it.
    #[expect(clippy::too_many_arguments, reason = "each is another thing that was read")]
    pub(super) async fn decide(
        &self,
        key: &VpaKey,
        seat: &mut Seat,
        filled: &WatermarkPodAutoscalerSpec,
        fresh: &FreshScale,
        blocked: Option<&str>,
        shown: &mut Shown,
        now: Time,
    ) -> Came {
        let (rules, fixes) = (Rules::of(filled), self.config.fixes);
        let scale = Scale { wanted: fresh.wanted, current: fresh.current };
        let pods = self.pods_of(key, seat, filled, fresh);
        let readiness = Readiness {
            object: Named { namespace: &key.namespace, name: &key.name },
            delay: rules.readiness_delay,
            least_percent: rules.least_percent,
            now,
            fixes,
        };
        let sources = match blocked {
            Some(_) => Vec::new(),
            None => self.ask(key, seat, filled, &rules, scale, &readiness, &pods).await,
        };
        for source in &sources {
            self.metrics.count_answer(source.kind.word(), source.asked.as_ref().map(drop));
        }
        let oldest = self.config.oldest_value.map(|age| now.earlier(age));
        let setting = Setting { rules: &rules, readiness, pods: &pods, scale, oldest, fixes };
        let settled = match self.config.compat {
            Compat::Plimsoll => settle(&seat.status(), scale, &rules),
            Compat::Upstream => seat.status(),
        };
        let facts = Facts { rules: &rules, setting, sources: &sources, blocked, settled, now };
        let decision = self.judge(&facts);
        shown.decision(&decision, &rules);
        let outcome = if decision.combined.is_ok() { "decided" } else { "held" };
        seat.failures = 0;
        self.carry_out(seat, filled, fresh, &facts, &decision, shown).await;
        (outcome, Next::Period)
    }

    fn judge(&self, facts: &Facts<'_>) -> Decision {
        let question = Question {
            rules: facts.rules,
            setting: facts.setting,
            sources: facts.sources,
            blocked: facts.blocked,
            status: &facts.settled,
            now: facts.now,
            fixes: self.config.fixes,
        };
        question.decide()
    }

    /// Makes the change, if there is one, and tells of it. Ours is booked before it is made: whoever leads next sees
    /// that somebody was about to.
    async fn carry_out(
        &self,
        seat: &mut Seat,
        filled: &WatermarkPodAutoscalerSpec,
        fresh: &FreshScale,
        facts: &Facts<'_>,
        decision: &Decision,
        shown: &mut Shown,
    ) {
        let now = facts.now;
        let namespace = seat.object.namespace().unwrap_or_default();
        let writing = Writing {
            spec: filled,
            namespace: &namespace,
            compat: self.config.compat,
            skips_idle_events: self.config.skips_idle_events,
            now,
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
        let made = match &decision.change {
            None => Made::Nothing,
            Some(_) if filled.dry_run => Made::DryRun,
            Some(_) if self.config.dry_run.is_some() => Made::Done,
            Some(change) => {
                if self.config.compat == Compat::Plimsoll {
                    let booked = self
                        .keep_status(seat, now, |before| {
                            writing.status(&base(before), decision, &Made::Booked)
                        })
                        .await;
                    if let Err(why) = booked {
                        // What cannot be booked is not done.
                        return self.not_written(seat, &why);
                    }
                }
                match self.put_scale(fresh, change.to).await {
                    Ok(()) => {
                        Self::count_moved(seat, shown, fresh.wanted, change.to);
                        Made::Done
                    }
                    // Nobody knows whether it was made, or it is not ours to say: the next look settles it.
                    Err(Unwritten::Fenced | Unwritten::Unanswered(_))
                        if self.config.compat == Compat::Plimsoll =>
                    {
                        return;
                    }
                    Err(why) => Made::Refused(why.to_string()),
                }
            }
        };
        let written = self
            .keep_status(seat, now, |before| writing.status(&base(before), decision, &made))
            .await;
        if let Err(why) = written {
            self.not_written(seat, &why);
        }
        let events = writing.events(decision, &made, last);
        self.tell_all(seat, events);
        if let (Made::Done, Some(change), None) = (&made, &decision.change, self.config.dry_run) {
            let (name, from, to) = (seat.object.name_any(), fresh.wanted, change.to);
            tracing::info!(
                namespace,
                name,
                from,
                to,
                reason = change.reason,
                "replicas were changed"
            );
        }
    }

    /// Writes replicas. Controllers write the same object all the time: as long as it is to have what it was taken to have,
    /// ours tries again with what it is by now.
    async fn put_scale(&self, fresh: &FreshScale, to: i32) -> Result<(), Unwritten> {
        let mut written = self.pen().scale(&fresh.path, &fresh.with_replicas(to)).await;
        if self.config.compat == Compat::Upstream {
            return written;
        }
        for _ in 1..TRIES {
            if !matches!(written, Err(Unwritten::Changed(_))) {
                break;
            }
            match self.scales.fresh(&fresh.of).await {
                Ok(again) if again.wanted == fresh.wanted && again.uid == fresh.uid => {
                    written = self.pen().scale(&again.path, &again.with_replicas(to)).await;
                }
                _ => break,
            }
        }
        written
    }

    fn count_moved(seat: &mut Seat, shown: &mut Shown, from: i32, to: i32) {
        let (up, down) = seat.moved.unwrap_or_default();
        let by = u64::from(from.abs_diff(to));
        seat.moved = Some(if to > from { (up + by, down) } else { (up, down + by) });
        shown.moved = seat.moved;
    }

    /// The pods that the scale's selector finds, with whose they are.
    fn pods_of(
        &self,
        key: &VpaKey,
        seat: &Seat,
        filled: &WatermarkPodAutoscalerSpec,
        fresh: &FreshScale,
    ) -> Vec<Pod> {
        let selector = match &fresh.selector {
            Ok(selector) => selector.clone(),
            // Upstream takes a selector of nothing for one of everything, and asks owners who is meant.
            Err(_) => Selector::everything(),
        };
        let skips = seat.object.annotations().get(SKIP_OWNER_CHECK).is_some_and(|it| it == "true");
        let target = &filled.scale_target_ref.name;
        let is_own = |pod: &KeptPod| {
            skips
                || pod.owners.iter().any(|owner| {
                    let is_it = self.config.compat == Compat::Plimsoll && owner.uid == fresh.uid;
                    is_it || is_owner_by_name(&owner.kind, &owner.name, target)
                })
        };
        let take = |pod: &KeptPod| Pod { is_own: is_own(pod), ..pod.pod.clone() };
        self.feeds.pods(&key.namespace, &selector, take)
    }
}
