//! One look at one object, from what it asks for to what is done about it.

use std::time::Duration;

use kube::ResourceExt as _;
use plimsoll_core::types::{Time, VpaKey};
use serde_json::json;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::{
    Role,
    gates::Blocked,
    rows::Shown,
    seat::{Seat, keep},
};
use crate::{act::Part, metrics::LookStep, observe::scale::Unscaled};
use plimsoll_core::{
    api::wpa::WatermarkPodAutoscalerSpec,
    types::compat::Compat,
    watermark::{
        attributes,
        conditions::Said,
        outcome::UNWRITTEN,
        rules::{fill_in, is_filled_in},
        validation::validate,
    },
};

/// What exists for series alone, and keeps objects from going where nobody takes it away.
const FINALIZER: &str = "finalizer.watermarkpodautoscaler.datadoghq.com";
/// Until an object that could not be looked at has its next turn, and one whose target is not there.
const AFTER_ERROR: Duration = Duration::from_secs(1);
const AFTER_NO_SCALE: Duration = Duration::from_secs(10);
/// Until a finalizer that could not be taken away is tried again, while nobody waits for it.
const ASK_AGAIN: Duration = Duration::from_mins(10);

/// When an object has its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// In its period.
    Period,
    /// After so long.
    After(Duration),
    /// When it changes.
    Change,
}

/// What came of a look, in one word for metrics.
pub(super) type Came = (&'static str, Next);

impl Role {
    /// Looks at an object. What it wants to be found by goes with every line of the log about it.
    pub(super) async fn look(&self, key: &VpaKey, seat: &mut Seat) -> Came {
        let annotation = seat.object.annotations().get(attributes::KEY);
        let attributes = attributes::read(annotation.map(String::as_str)).unwrap_or_else(|why| {
            tracing::debug!(%key, why, "{} is no JSON object", attributes::KEY);
            None
        });
        let span = attributes
            .map_or_else(Span::none, |attributes| tracing::error_span!("object", %attributes));
        self.look_at(key, seat).instrument(span).await
    }

    async fn look_at(&self, key: &VpaKey, seat: &mut Seat) -> Came {
        let now = self.clock.now();
        if seat.object.metadata.deletion_timestamp.is_some() {
            return self.let_go(seat).await;
        }
        if self.config.compat == Compat::Plimsoll && seat.keeps_finalizer.is_none_or(|it| it <= now)
        {
            // It is followed all the same: the finalizer is in nobody's way before it is deleted.
            let is_dropped = self.drop_finalizer(seat).await;
            seat.keeps_finalizer = (!is_dropped).then(|| now.later(ASK_AGAIN));
        }
        let filled = fill_in(&seat.object.spec);
        let mut shown = Shown::of(&filled, seat.shown.as_deref(), now);
        shown.labels = self.shown_labels(seat);
        shown.dry_run |= self.config.dry_run.is_some();
        if let Some(before) =
            seat.shown.as_deref().filter(|_| self.config.compat == Compat::Plimsoll)
        {
            shown.run_down(before.at);
        }
        if self.config.compat == Compat::Plimsoll {
            shown.begin_countdown(&filled, &seat.status());
        }
        let came = self.follow(key, seat, &filled, &mut shown, now).await;
        shown.conditions(&seat.status());
        seat.had = Some(self.clock.now());
        seat.shown = Some(std::sync::Arc::new(shown));
        came
    }

    async fn follow(
        &self,
        key: &VpaKey,
        seat: &mut Seat,
        filled: &WatermarkPodAutoscalerSpec,
        shown: &mut Shown,
        now: Time,
    ) -> Came {
        if self.config.compat == Compat::Upstream
            && self.config.dry_run.is_none()
            && !is_filled_in(&seat.object.spec)
        {
            return self.write_defaults(seat, filled).await;
        }
        if let Err(invalid) = validate(filled, &key.to_string()) {
            let why = invalid.to_string();
            let [inactive, _] = Said::unprocessed();
            let is_said = self.say(seat, &[inactive, invalid.said()], now).await;
            if self.config.compat == Compat::Plimsoll {
                shown.forget();
            }
            if seat.warned.iter().all(|(_, before)| *before != why) {
                self.tell(seat, true, "FailedSpecCheck", why.clone());
            }
            seat.warned = vec![("FailedSpecCheck", why)];
            // Nothing but a change makes it right; only what it says is tried until it stands.
            if is_said || self.config.compat == Compat::Upstream {
                return ("invalid", Next::Change);
            }
            return ("error", Next::After(self.back_off(seat, AFTER_ERROR)));
        }
        self.read_options(seat, filled, now).await;
        let begun = Instant::now();
        let blocked = self.ask_gates(key, seat, shown, now).await;
        self.metrics.step(LookStep::Gates, begun.elapsed());
        if let Some(Blocked { pause, .. }) = &blocked
            && self.config.compat == Compat::Upstream
        {
            return ("blocked", Next::After(*pause));
        }
        let of = self.workloads.target(&key.namespace, &filled.scale_target_ref);
        let begun = Instant::now();
        let scale = self.scale(seat, of).await;
        self.metrics.step(LookStep::Scale, begun.elapsed());
        let scale = match scale {
            Ok(scale) => scale,
            Err(why) => return self.without_scale(seat, shown, &why, now).await,
        };
        let pause = blocked.as_ref().map(|blocked| blocked.pause);
        let why = blocked.map(|blocked| blocked.why);
        let came = self.decide(key, seat, filled, scale, why.as_deref(), shown, now).await;
        match pause {
            // Bounds hold meanwhile, so that the next look is no later than any other.
            Some(pause) => ("blocked", Next::After(pause.min(self.config.period))),
            None => came,
        }
    }

    pub(super) async fn without_scale(
        &self,
        seat: &mut Seat,
        shown: &mut Shown,
        why: &Unscaled,
        now: Time,
    ) -> Came {
        if self.config.compat == Compat::Plimsoll {
            shown.forget_limits();
        }
        let text = why.to_string();
        let said = Said::unprocessed();
        self.say(seat, &said, now).await;
        let is_new = seat.warned.iter().all(|(_, before)| *before != text);
        if is_new || self.config.compat == Compat::Upstream {
            self.tell(seat, true, "FailedProcessWPA", text.clone());
        }
        seat.warned = vec![("FailedProcessWPA", text)];
        let pause = match why {
            Unscaled::NotFound(_) => AFTER_NO_SCALE,
            // Upstream goes by the text, which is the same.
            Unscaled::Unavailable(_) if self.config.compat == Compat::Upstream => AFTER_NO_SCALE,
            _ => AFTER_ERROR,
        };
        if self.config.compat == Compat::Upstream {
            return ("error", Next::After(pause));
        }
        ("error", Next::After(self.back_off(seat, pause)))
    }

    /// Twice as long each time, up to the time between two looks.
    fn back_off(&self, seat: &mut Seat, pause: Duration) -> Duration {
        let pause = pause.saturating_mul(1 << seat.failures.min(8)).min(self.config.period);
        seat.failures = seat.failures.saturating_add(1);
        pause
    }

    /// An object on its way out: what keeps it is taken away.
    async fn let_go(&self, seat: &mut Seat) -> Came {
        seat.shown = None;
        if self.drop_finalizer(seat).await {
            ("gone", Next::Change)
        } else if self.config.compat == Compat::Upstream {
            ("error", Next::After(AFTER_ERROR))
        } else {
            ("error", Next::After(self.back_off(seat, AFTER_ERROR)))
        }
    }

    /// Takes upstream's finalizer away: series go with their objects here, and a delete must not hang on anybody.
    async fn drop_finalizer(&self, seat: &mut Seat) -> bool {
        let finalizers = seat.object.finalizers();
        if self.config.dry_run.is_some() || !finalizers.iter().any(|one| one == FINALIZER) {
            return true;
        }
        let others: Vec<&String> = finalizers.iter().filter(|one| *one != FINALIZER).collect();
        let body = json!({"metadata": {"finalizers": others}});
        self.write_object(seat, body).await
    }

    /// Upstream writes into the spec what it lacks.
    async fn write_defaults(&self, seat: &mut Seat, filled: &WatermarkPodAutoscalerSpec) -> Came {
        let Ok(spec) = serde_json::to_value(filled) else { return ("error", Next::Period) };
        if self.write_object(seat, json!({ "spec": spec })).await {
            ("defaulted", Next::After(Duration::ZERO))
        } else {
            ("error", Next::After(AFTER_ERROR))
        }
    }

    async fn write_object(&self, seat: &mut Seat, body: serde_json::Value) -> bool {
        match self.pen().alter(&seat.object, Part::Object, body).await {
            Ok(stored) => {
                seat.object = keep(stored);
                true
            }
            Err(crate::act::Unwritten::Gone) => true,
            Err(why) => {
                self.not_written(seat, &why, UNWRITTEN);
                false
            }
        }
    }

    /// Labels of the object that are wanted in metrics.
    fn shown_labels(&self, seat: &Seat) -> Vec<(String, String)> {
        let labels = seat.object.labels();
        let wanted = self.config.labels_as_tags.iter();
        wanted.map(|key| (key.clone(), labels.get(key).cloned().unwrap_or_default())).collect()
    }
}
