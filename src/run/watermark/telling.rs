//! What users are told: the status of an object, written when there is news, and events.

use std::{sync::atomic::Ordering, time::Duration};

use kube::ResourceExt as _;
use plimsoll_core::types::Time;

use super::{
    Role,
    seat::{Seat, keep},
};
use crate::act::{About, Happening, Part, Pen, Unwritten, status_patch};
use plimsoll_core::{
    api::{
        trace::Trace,
        wpa::{MetricStatus, WatermarkPodAutoscaler, WatermarkPodAutoscalerStatus},
    },
    types::compat::Compat,
    watermark::{
        conditions::{self, Said},
        outcome::{Event, UNWRITTEN},
    },
};

/// Who writes, in `managedFields`.
const WRITER: &str = "plimsoll-watermark";
/// How often a status that somebody else changed meanwhile is worked out again.
const TRIES: usize = 3;

/// How long a server is taken for one that takes decisions out of a status.
const ASK_AGAIN: Duration = Duration::from_mins(10);

/// Somebody who has waited for so long is late: turns go before values that nobody waits for.
const LATE: Duration = Duration::from_millis(500);

/// What a reader would see of another status.
enum Worth {
    Nothing,
    /// Other values alone, which nobody waits for.
    Values,
    News,
}

impl Role {
    /// With what is written.
    pub(super) fn pen(&self) -> Pen<'_> {
        Pen { client: &self.client, permit: &self.permit, stats: &self.stats, writer: WRITER }
    }

    /// Writes what a status becomes, if a reader would see a difference. What it becomes is worked out again from what
    /// somebody else wrote meanwhile.
    pub(super) async fn keep_status(
        &self,
        seat: &mut Seat,
        now: Time,
        become_status: impl Fn(&WatermarkPodAutoscalerStatus) -> WatermarkPodAutoscalerStatus,
    ) -> Result<(), Unwritten> {
        if self.config.dry_run.is_some() {
            seat.pretended = Some(become_status(&seat.status()));
            return Ok(());
        }
        let generation = seat.object.metadata.generation;
        let mut last = Unwritten::Gone;
        for _ in 0..TRIES {
            let before = seat.object.status.clone();
            let mut after = become_status(&before.clone().unwrap_or_default());
            if self.drops_decisions(now) {
                after.decision = before.as_ref().and_then(|before| before.decision.clone());
            }
            let turn = match self.worth(seat, before.as_ref(), &after, now) {
                Worth::Nothing => return Ok(()),
                Worth::News => None,
                // Whoever waits for an answer to a write looks at nobody meanwhile.
                Worth::Values => match self.values.try_acquire() {
                    Ok(turn) => Some(turn),
                    Err(_) => return Ok(()),
                },
            };
            let patch = status_patch(before.as_ref(), &after);
            let written = self.pen().alter(&seat.object, Part::Status, patch).await;
            drop(turn);
            match written {
                Ok(stored) => {
                    let kept = stored.status.as_ref().is_some_and(|it| it.decision.is_some());
                    if after.decision.is_some() {
                        self.note_kept(kept, now);
                    }
                    seat.object = keep(stored);
                    seat.written = Some(now);
                    return Ok(());
                }
                Err(Unwritten::Changed(why)) => {
                    last = Unwritten::Changed(why);
                    let Some(fresh) = self.pen().read(&seat.object).await? else {
                        return Err(Unwritten::Gone);
                    };
                    // What was decided is about another object by now, or somebody else has acted.
                    let acted = |object: &WatermarkPodAutoscaler| {
                        object.status.as_ref().and_then(|status| status.last_scale_time.clone())
                    };
                    if fresh.metadata.generation != generation
                        || fresh.uid() != seat.object.uid()
                        || acted(&fresh) != acted(&seat.object)
                    {
                        return Err(last);
                    }
                    seat.object = keep(fresh);
                }
                Err(why) => return Err(why),
            }
        }
        Err(last)
    }

    /// Whether the server takes decisions out of a status. Every now and then one is written all the same: the definition may
    /// have been replaced.
    fn drops_decisions(&self, now: Time) -> bool {
        let last = self.last_dropped.load(Ordering::Relaxed);
        let from = Time::from_nanos(last);
        last != 0 && (from..from.later(ASK_AGAIN)).contains(&now)
    }

    /// The server has kept a decision in a status, or taken it out: then the definition is upstream's.
    fn note_kept(&self, kept: bool, now: Time) {
        let last = if kept { 0 } else { now.as_nanos() };
        let before = self.last_dropped.swap(last, Ordering::Relaxed);
        if kept && before != 0 {
            tracing::info!("the definition of WatermarkPodAutoscalers has status.decision by now");
        }
        if !kept && before == 0 {
            tracing::warn!(
                "the definition of WatermarkPodAutoscalers in this cluster lacks status.decision: how a number of \
                 replicas came about is not kept, `plimsoll explain wpa` has less to tell, and delays of single metrics \
                 and fallbacks begin anew when another replica takes over; apply `plimsoll crds` to have it, which is noticed within ten minutes"
            );
        }
    }

    /// Whether a reader sees more than another value, or that was not written for a while. Upstream writes whatever
    /// differs.
    fn worth(
        &self,
        seat: &Seat,
        before: Option<&WatermarkPodAutoscalerStatus>,
        after: &WatermarkPodAutoscalerStatus,
        now: Time,
    ) -> Worth {
        let Some(before) = before else { return Worth::News };
        if is_the_same(before, after) {
            return Worth::Nothing;
        }
        if self.config.compat == Compat::Upstream || without_values(before) != without_values(after)
        {
            return Worth::News;
        }
        let due = seat.written.map(|at| at.later(self.config.status_interval));
        if due.is_none_or(|due| due <= now) && self.has_time_for_values() {
            Worth::Values
        } else {
            Worth::Nothing
        }
    }

    /// Whether a mere value is in the way neither of what else is written nor of anybody's turn.
    fn has_time_for_values(&self) -> bool {
        self.permit.limiter().has_spare() && self.book.longest_wait(self.clock.now()) < LATE
    }

    /// Says something of an object alone: nothing was decided. Answers whether it stands.
    pub(super) async fn say(&self, seat: &mut Seat, said: &[Said], now: Time) -> bool {
        let written = self
            .keep_status(seat, now, |before| {
                let mut status = before.clone();
                for one in said {
                    conditions::set(&mut status, one, now);
                }
                // Which condition was said last is no news by itself.
                if self.config.compat == Compat::Plimsoll && status.conditions == before.conditions
                {
                    return before.clone();
                }
                status
            })
            .await;
        if let Err(why) = &written {
            self.not_written(seat, why, UNWRITTEN);
        }
        written.is_ok()
    }

    /// A status could not be written, which is told by this reason: it is tried again with the next look.
    pub(super) fn not_written(&self, seat: &Seat, why: &Unwritten, reason: &'static str) {
        let (namespace, name) =
            (seat.object.namespace().unwrap_or_default(), seat.object.name_any());
        match why {
            Unwritten::Gone | Unwritten::Fenced | Unwritten::Changed(_) => {
                tracing::debug!(%namespace, %name, %why, "a status was not written");
            }
            Unwritten::Unanswered(_) | Unwritten::Unsure(_) | Unwritten::Refused(_) => {
                tracing::warn!(%namespace, %name, %why, "a status was not written; it is tried again");
                self.tell(seat, true, reason, why.to_string());
            }
        }
    }

    /// The answer to a change of replicas leaves open whether it was made. It stays booked, and the next look sees.
    pub(super) async fn tell_unsure(&self, seat: &mut Seat, why: String, now: Time) {
        let (namespace, name) =
            (seat.object.namespace().unwrap_or_default(), seat.object.name_any());
        tracing::warn!(%namespace, %name, %why, "whether replicas were changed is seen with the next look");
        self.say(seat, &[Said::unsure(&why)], now).await;
        let event = Event { is_warning: true, reason: "FailedScale", message: why };
        self.tell_all(seat, vec![event]);
    }

    /// Events of a decision. Ours says what stands once, upstream with every look.
    pub(super) fn tell_all(&self, seat: &mut Seat, events: Vec<Event>) {
        if self.config.compat == Compat::Upstream {
            for Event { is_warning, reason, message } in events {
                self.tell(seat, is_warning, reason, message);
            }
            return;
        }
        let (warnings, others): (Vec<Event>, Vec<Event>) =
            events.into_iter().partition(|event| event.is_warning);
        let mut standing = Vec::new();
        for Event { reason, message, .. } in warnings {
            let is_new = seat.warned.iter().all(|(before, _)| *before != reason);
            if is_new {
                self.tell(seat, true, reason, message.clone());
            }
            standing.push((reason, message));
        }
        seat.warned = standing;
        let was_idle = seat.is_idle;
        seat.is_idle = others.iter().any(|event| event.reason == "NotScaling");
        for Event { reason, message, .. } in others {
            if reason != "NotScaling" || !was_idle {
                self.tell(seat, false, reason, message);
            }
        }
    }

    /// An event of an object.
    pub(super) fn tell(
        &self,
        seat: &Seat,
        is_warning: bool,
        reason: &'static str,
        message: String,
    ) {
        if self.config.dry_run.is_some_and(|dry| !dry.events) {
            return;
        }
        let about = About {
            api_version: "datadoghq.com/v1alpha1",
            kind: "WatermarkPodAutoscaler",
            namespace: seat.object.namespace().unwrap_or_default(),
            name: seat.object.name_any(),
            uid: seat.object.uid().unwrap_or_default(),
        };
        let at = self.clock.now();
        self.events.tell(Happening { about, is_warning, reason, message, at });
    }
}

/// Whether a status says the same: that a decision was made once more is no news.
fn is_the_same(
    before: &WatermarkPodAutoscalerStatus,
    after: &WatermarkPodAutoscalerStatus,
) -> bool {
    let mut after = after.clone();
    if let (Some(decision), Some(before)) = (&mut after.decision, &before.decision) {
        decision.at.clone_from(&before.at);
    }
    *before == after
}

/// A status without what may be told late.
fn without_values(status: &WatermarkPodAutoscalerStatus) -> WatermarkPodAutoscalerStatus {
    let mut status = status.clone();
    status.current_metrics.iter_mut().for_each(forget_value);
    for one in &mut status.conditions {
        // Texts of conditions name values too, and counts of pods.
        one.message.clear();
    }
    status.decision = status.decision.take().map(Trace::without_values);
    status.last_condition_type.clear();
    status.last_condition_state.clear();
    status
}

fn forget_value(metric: &mut MetricStatus) {
    if let Some(external) = &mut metric.external {
        external.current_value = plimsoll_core::types::quantity::Quantity::ZERO;
    }
    if let Some(resource) = &mut metric.resource {
        resource.current_average_value = plimsoll_core::types::quantity::Quantity::ZERO;
    }
    if let Some(resource) = &mut metric.container_resource {
        resource.current_average_value = plimsoll_core::types::quantity::Quantity::ZERO;
    }
}
