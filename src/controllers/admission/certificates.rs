//! What the webhook shows: found in files or made here, and changed only when API servers had time to learn of it.

use std::{
    fs,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use plimsoll_core::types::Time;

use super::{
    AdmissionController,
    config::{CertificateFiles, CertificateSource},
};
use crate::cluster::{
    server::{
        certificate::{
            CaBundle, Candidate, CertificateSpec, IssuedCertificate, Validity, select_certificate,
        },
        webhook::certified_key,
    },
    write::{
        CertificateSecret,
        webhook_config::{WebhookChange, WebhookScope},
    },
};
use plimsoll_core::types::compat::Compat;

/// An authority that is not ours stays in the registration for so long after this process has seen it: replicas that
/// still show what it stands for must be believed until they have learned of the new one.
const FOREIGN_CA_RETENTION: Duration = Duration::from_hours(1);
/// After a registration that was brought in order at the start only its trust is kept up, and only after it was wrong
/// for so long: another replica may just be ahead.
const REGISTRATION_REPAIR_DELAY: Duration = Duration::from_secs(30);

/// All that is known of certificates.
#[derive(Debug, Default)]
pub(super) struct Certificates(Mutex<CertificateState>);

#[derive(Debug, Default)]
pub(super) struct CertificateState {
    /// The newest first; two at most.
    pairs: Vec<TrackedPair>,
    /// Which one is shown.
    serving: Option<IssuedCertificate>,
    /// Whom the API server is registered to trust, when it was last looked at.
    registered: Option<CaBundle>,
    /// What the API server was once registered to trust of ours.
    once_registered: CaBundle,
    /// Since when the registration has been wrong.
    wrong_since: Option<Instant>,
    /// Authorities of ours that stand for nothing any more that could be shown.
    retired: CaBundle,
    /// Authorities that others put into the registration before ours was there, with when they were first seen.
    foreign: Vec<(CaBundle, Instant)>,
    /// Whether the registration was brought in order once.
    was_registered: bool,
    /// What went wrong last, so that it is said once.
    last_error: Option<String>,
}

#[derive(Clone, Debug)]
struct TrackedPair {
    pair: IssuedCertificate,
    validity: Validity,
    found_at: Instant,
    /// Since when API servers are known to trust it.
    trusted_since: Option<Instant>,
}

impl Certificates {
    fn lock(&self) -> MutexGuard<'_, CertificateState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is shown, and who stands for it.
    pub fn serving_pair(&self) -> Option<IssuedCertificate> {
        self.lock().serving.clone()
    }

    /// Whom the API server is registered to trust.
    pub fn registered_bundle(&self) -> Option<CaBundle> {
        self.lock().registered.clone()
    }

    /// Whether the registration was brought in order once.
    pub fn was_registered(&self) -> bool {
        self.lock().was_registered
    }

    /// What is wrong, if anything is.
    pub fn last_error(&self) -> Option<String> {
        self.lock().last_error.clone()
    }

    /// Takes a pair in as the newest, unless it is that already.
    fn add_pair(&self, pair: IssuedCertificate) -> Result<(), String> {
        certified_key(&pair.chain, &pair.key).map_err(|why| why.to_string())?;
        let validity = Validity::from_pem(&pair.chain, "the certificate");
        let validity = validity.map_err(|why| why.to_string())?;
        let mut known = self.lock();
        if let Some(place) = known.pairs.iter().position(|held| held.pair == pair) {
            // Whoever goes back to what was before means it.
            let held = known.pairs.remove(place);
            known.pairs.insert(0, held);
        } else {
            known.pairs.insert(
                0,
                TrackedPair { pair, validity, found_at: Instant::now(), trusted_since: None },
            );
        }
        // What is shown stays, however fast others come after it.
        let shown = known.serving.clone();
        let mut place = 0;
        known.pairs.retain(|held| {
            place += 1;
            place <= 2 || shown.as_ref() == Some(&held.pair)
        });
        Ok(())
    }

    /// The authorities that stand for what is or will be shown. One that stands only for what was shown before goes
    /// after a while, where nobody knows who else shows it: `keeps` says that somebody does.
    fn own_ca_bundle(&self, keeps: bool, now: Time) -> CaBundle {
        let mut known = self.lock();
        let newest = known.pairs.first().map(|held| held.pair.clone());
        known
            .pairs
            .retain(|held| now <= held.validity.not_after || newest.as_ref() == Some(&held.pair));
        let is_new =
            known.pairs.first().is_some_and(|held| held.found_at.elapsed() < FOREIGN_CA_RETENTION);
        if !keeps && !is_new {
            known.pairs.truncate(1);
        }
        let all = |pairs: &[TrackedPair]| {
            pairs.iter().fold(CaBundle::default(), |bundle, held| {
                bundle.union(&CaBundle::parse(&held.pair.authority))
            })
        };
        let ours = all(&known.pairs);
        let former = known.retired.clone().union(&known.once_registered);
        known.retired = former.difference(&ours);
        ours
    }
}

impl CertificateState {
    /// Ours, and those of others: what was there before ours goes after a while, and what came later is somebody's who
    /// knows better. What was ours goes with what it stood for.
    fn desired_ca_bundle(
        &self,
        ours: &CaBundle,
        registered: &CaBundle,
        now: Instant,
        time: Time,
    ) -> CaBundle {
        let others = registered.clone().unexpired(time);
        let is_over = |authority: &CaBundle| {
            let seen = self.foreign.iter().find(|(seen, _)| seen == authority);
            let old =
                seen.is_some_and(|(_, since)| now.duration_since(*since) >= FOREIGN_CA_RETENTION);
            old || self.retired.contains(authority)
        };
        let stays = others.iter().filter(|authority| !is_over(authority));
        stays.fold(ours.clone(), |bundle, authority| bundle.union(&authority))
    }

    /// Remembers whose authorities were in the registration before ours.
    fn record_foreign_authorities(&mut self, ours: &CaBundle, registered: &CaBundle, now: Instant) {
        if !self.once_registered.contains(ours) {
            for authority in registered.iter().filter(|authority| !ours.contains(authority)) {
                if !self.foreign.iter().any(|(seen, _)| *seen == authority) {
                    self.foreign.push((authority, now));
                }
            }
        }
        self.foreign.retain(|(seen, _)| registered.contains(seen) && !ours.contains(seen));
    }
}

impl AdmissionController {
    /// Looks for certificates, keeps the registration in order, and shows what can be shown. Once at the start, and
    /// whenever it is time.
    pub(super) async fn reconcile_certificates(&self) {
        let now = self.clock.now();
        let found = match self.source {
            CertificateSource::Mounted => self.reload_files(),
            CertificateSource::SelfSigned => self.reconcile_secret(now).await,
        };
        // Something must be shown before anybody is sent here.
        self.update_serving_pair(now);
        let registered = self.reconcile_registration(now).await;
        self.update_serving_pair(now);
        let trouble = found.and(registered).err();
        let mut known = self.certificates.lock();
        if known.last_error != trouble {
            if let Some(why) = &trouble {
                tracing::warn!("{why}");
            } else {
                tracing::info!("certificates and registration are in order again");
            }
            known.last_error = trouble;
        }
    }

    fn reload_files(&self) -> Result<(), String> {
        let files = &self.config.certificates.files;
        if !files.reload && !self.certificates.lock().pairs.is_empty() {
            return Ok(());
        }
        let pair = read_files(files)?;
        let newest = self.certificates.lock().pairs.first().map(|held| held.pair.clone());
        if newest.as_ref() == Some(&pair) {
            return Ok(());
        }
        // Files change one after the other: what does not belong together yet will in a moment.
        let own = CaBundle::parse(&pair.authority);
        if newest.is_some() && !own.is_empty() {
            let believed = own.verify(&pair.chain, self.config.server_name(), self.clock.now());
            believed.map_err(|why| {
                self.metrics.count_certificate_rejected();
                let (authority, chain) = (files.authority.display(), files.certificate.display());
                format!(
                    "{authority} does not stand for {chain}: {why}; what was shown before is shown on"
                )
            })?;
        }
        self.certificates.add_pair(pair).map_err(|why| {
            self.metrics.count_certificate_rejected();
            let (certificate, key) = (files.certificate.display(), files.key.display());
            format!("{certificate} and {key}: {why}; what was shown before is shown on")
        })
    }

    async fn reconcile_secret(&self, now: Time) -> Result<(), String> {
        let secret = &self.config.certificates.secret;
        let wanted =
            CertificateSpec { names: self.config.server_names.clone(), lifetime: secret.lifetime };
        let keeper = CertificateSecret::new(self.client.clone(), &secret.namespace, &secret.name)
            .with_stats(self.write_stats.clone());
        let kept =
            keeper.ensure(&self.permit, &wanted, now).await.map_err(|why| why.to_string())?;
        if kept.was_renewed {
            let (namespace, name) = (&secret.namespace, &secret.name);
            tracing::info!(namespace, name, "a new certificate was made and is kept in a Secret");
        }
        for pair in kept.pairs.into_iter().rev() {
            self.certificates
                .add_pair(pair)
                .inspect_err(|_| self.metrics.count_certificate_rejected())?;
        }
        Ok(())
    }

    async fn reconcile_registration(&self, now: Time) -> Result<(), String> {
        let Some(registration) = &self.registration else {
            // Whoever registers it knows what they do.
            let long_ago =
                Instant::now().checked_sub(self.config.certificates.ca_propagation_delay);
            for held in &mut self.certificates.lock().pairs {
                held.trusted_since = held.trusted_since.or(long_ago);
            }
            return Ok(());
        };
        let ours =
            self.certificates.own_ca_bundle(self.source == CertificateSource::SelfSigned, now);
        if self.certificates.serving_pair().is_none() {
            return Err("nothing is registered before there is a certificate".to_owned());
        }
        let instant = Instant::now();
        let (extent, patient) = {
            let known = self.certificates.lock();
            let wrong = known.wrong_since.map_or(Duration::ZERO, |since| instant - since);
            let extent =
                if known.was_registered { WebhookScope::CaBundle } else { WebhookScope::Full };
            // What we have just got must be told at once; what others took away may be on its way.
            let told = known.once_registered.contains(&ours);
            (extent, known.was_registered && told && wrong < REGISTRATION_REPAIR_DELAY)
        };
        let trust = |registered: &CaBundle| {
            let mut known = self.certificates.lock();
            known.record_foreign_authorities(&ours, registered, instant);
            if patient && !registered.is_empty() && !registered.contains(&ours) {
                known.wrong_since.get_or_insert(instant);
                return registered.clone();
            }
            match self.config.compat {
                Compat::Upstream => ours.clone(),
                Compat::Plimsoll => known.desired_ca_bundle(&ours, registered, instant, now),
            }
        };
        let registered = registration.ensure(&self.permit, extent, &trust).await;
        let registered = registered.map_err(|why| {
            self.certificates.lock().registered = None;
            why.to_string()
        })?;
        match registered.change {
            WebhookChange::None => {}
            WebhookChange::Created => tracing::info!("the webhook is registered"),
            WebhookChange::Patched => {
                tracing::info!("the registration of the webhook was brought in order");
            }
        }
        let mut known = self.certificates.lock();
        known.was_registered = true;
        if registered.ca_bundle.contains(&ours) {
            known.wrong_since = None;
            known.once_registered = ours;
        }
        let name = self.config.server_name();
        for held in &mut known.pairs {
            let trusted = registered.ca_bundle.verify(&held.pair.chain, name, now);
            held.trusted_since = trusted.is_ok().then(|| held.trusted_since.unwrap_or(instant));
        }
        known.registered = Some(registered.ca_bundle);
        Ok(())
    }

    /// Shows what can be shown now.
    fn update_serving_pair(&self, now: Time) {
        let settle = self.config.certificates.ca_propagation_delay;
        let mut known = self.certificates.lock();
        let candidates: Vec<Candidate> = known
            .pairs
            .iter()
            .map(|held| Candidate {
                validity: held.validity,
                trusted_for: held.trusted_since.map(|since| since.elapsed()),
            })
            .collect();
        let Some(place) = select_certificate(&candidates, now, settle) else { return };
        let TrackedPair { pair, validity, .. } = known.pairs[place].clone();
        if known.serving.as_ref() == Some(&pair) {
            return;
        }
        match certified_key(&pair.chain, &pair.key) {
            Ok(key) => {
                self.keyring.set(key);
                self.metrics.set_certificate_expiry(validity.not_after);
                tracing::info!(until = %validity.not_after, "the webhook shows another certificate");
                known.serving = Some(pair);
            }
            Err(why) => tracing::error!(%why, "a certificate that was fine cannot be shown"),
        }
    }
}

/// What is in the files. An authority that is not there is none: whoever registers the webhook may know it.
pub(super) fn read_files(files: &CertificateFiles) -> Result<IssuedCertificate, String> {
    let read = |path: &Path| fs::read(path).map_err(|why| format!("{}: {why}", path.display()));
    Ok(IssuedCertificate {
        chain: read(&files.certificate)?,
        key: read(&files.key)?,
        authority: fs::read(&files.authority).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::server::certificate::issue;

    const NOW: Time = Time::from_secs(1_800_000_000);

    fn pair() -> IssuedCertificate {
        let wanted =
            CertificateSpec { names: vec!["a.svc".to_owned()], lifetime: Duration::from_hours(10) };
        issue(&wanted, NOW).expect("made")
    }

    fn authority() -> CaBundle {
        CaBundle::parse(&pair().authority)
    }

    #[test]
    fn what_was_registered_before_goes_after_a_while_and_what_came_later_stays() {
        let (ours, before, later) = (authority(), authority(), authority());
        let mut known = CertificateState::default();
        let start = Instant::now();
        known.record_foreign_authorities(&ours, &before, start);
        let both = ours.clone().union(&before);
        assert_eq!(
            known.desired_ca_bundle(&ours, &before, start, NOW),
            both,
            "others still show it"
        );
        assert_eq!(known.desired_ca_bundle(&ours, &both, start + FOREIGN_CA_RETENTION, NOW), ours);
        let end = NOW.later(Duration::from_hours(11));
        assert_eq!(known.desired_ca_bundle(&ours, &before, start, end), ours, "it has ended");

        known.once_registered = ours.clone();
        let both = ours.clone().union(&later);
        known.record_foreign_authorities(&ours, &both, start);
        assert_eq!(
            known.desired_ca_bundle(&ours, &both, start + FOREIGN_CA_RETENTION, NOW),
            both,
            "a replica is ahead"
        );
        known.retired = later;
        assert_eq!(
            known.desired_ca_bundle(&ours, &both, start, NOW),
            ours,
            "it was ours, and is no more"
        );
    }

    #[test]
    fn the_newest_two_are_kept_and_what_is_shown_whatever_comes() {
        let certificates = Certificates::default();
        let pairs: Vec<IssuedCertificate> = (0..4).map(|_| pair()).collect();
        certificates.add_pair(pairs[0].clone()).expect("is fine");
        certificates.lock().serving = Some(pairs[0].clone());
        for pair in &pairs[1..] {
            certificates.add_pair(pair.clone()).expect("is fine");
        }
        let held = || -> Vec<IssuedCertificate> {
            certificates.lock().pairs.iter().map(|held| held.pair.clone()).collect()
        };
        assert_eq!(held(), [pairs[3].clone(), pairs[2].clone(), pairs[0].clone()]);
        assert_eq!(certificates.own_ca_bundle(true, NOW).len(), 3);
        certificates.add_pair(pairs[2].clone()).expect("is fine");
        assert_eq!(held(), [pairs[2].clone(), pairs[3].clone(), pairs[0].clone()], "back again");
        let mixed = IssuedCertificate { key: pairs[1].key.clone(), ..pairs[0].clone() };
        certificates.add_pair(mixed).expect_err("they do not belong together");
        let late = NOW.later(Duration::from_hours(11));
        assert_eq!(
            certificates.own_ca_bundle(true, late).len(),
            1,
            "the newest, though all have ended"
        );
    }
}
