//! What the webhook shows: found in files or made here, and changed only when API servers had time to learn of it.

use std::{
    fs,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use plimsoll_core::types::Time;

use super::{
    Role,
    config::{CertificateFiles, CertificateSource},
};
use crate::{
    act::{
        CertificateSecret,
        registration::{Change, Extent},
    },
    certificate::{Bundle, Candidate, Pair, Validity, Wanted, shown},
    serve::webhook::certified,
};
use plimsoll_core::types::compat::Compat;

/// An authority that is not ours stays in the registration for so long after this process has seen it: replicas that
/// still show what it stands for must be believed until they have learned of the new one.
const OVERLAP: Duration = Duration::from_hours(1);
/// After a registration that was brought in order at the start only its trust is kept up, and only after it was wrong
/// for so long: another replica may just be ahead.
const GRIEVANCE: Duration = Duration::from_secs(30);

/// All that is known of certificates.
#[derive(Debug, Default)]
pub(super) struct Certificates(Mutex<Known>);

#[derive(Debug, Default)]
pub(super) struct Known {
    /// The newest first; two at most.
    pairs: Vec<Held>,
    /// Which one is shown.
    shown: Option<Pair>,
    /// Whom the API server is registered to trust, when it was last looked at.
    registered: Option<Bundle>,
    /// What the API server was once registered to trust of ours.
    told: Bundle,
    /// Since when the registration has been wrong.
    wrong_since: Option<Instant>,
    /// Authorities of ours that stand for nothing any more that could be shown.
    former: Bundle,
    /// Authorities that others put into the registration before ours was there, with when they were first seen.
    others: Vec<(Bundle, Instant)>,
    /// Whether the registration was brought in order once.
    ordered: bool,
    /// What went wrong last, so that it is said once.
    trouble: Option<String>,
}

#[derive(Clone, Debug)]
struct Held {
    pair: Pair,
    validity: Validity,
    found: Instant,
    /// Since when API servers are known to trust it.
    trusted: Option<Instant>,
}

impl Certificates {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is shown, and who stands for it.
    pub fn shown(&self) -> Option<Pair> {
        self.lock().shown.clone()
    }

    /// Whom the API server is registered to trust.
    pub fn registered(&self) -> Option<Bundle> {
        self.lock().registered.clone()
    }

    /// Whether the registration was brought in order once.
    pub fn was_registered(&self) -> bool {
        self.lock().ordered
    }

    /// What is wrong, if anything is.
    pub fn trouble(&self) -> Option<String> {
        self.lock().trouble.clone()
    }

    /// Takes a pair in as the newest, unless it is that already.
    fn take(&self, pair: Pair) -> Result<(), String> {
        certified(&pair.chain, &pair.key).map_err(|why| why.to_string())?;
        let validity = Validity::of_pem(&pair.chain, "the certificate");
        let validity = validity.map_err(|why| why.to_string())?;
        let mut known = self.lock();
        if let Some(place) = known.pairs.iter().position(|held| held.pair == pair) {
            // Whoever goes back to what was before means it.
            let held = known.pairs.remove(place);
            known.pairs.insert(0, held);
        } else {
            known.pairs.insert(0, Held { pair, validity, found: Instant::now(), trusted: None });
        }
        // What is shown stays, however fast others come after it.
        let shown = known.shown.clone();
        let mut place = 0;
        known.pairs.retain(|held| {
            place += 1;
            place <= 2 || shown.as_ref() == Some(&held.pair)
        });
        Ok(())
    }

    /// The authorities that stand for what is or will be shown. One that stands only for what was shown before goes
    /// after a while, where nobody knows who else shows it: `keeps` says that somebody does.
    fn bundle(&self, keeps: bool, now: Time) -> Bundle {
        let mut known = self.lock();
        let newest = known.pairs.first().map(|held| held.pair.clone());
        known.pairs.retain(|held| now <= held.validity.ends || newest.as_ref() == Some(&held.pair));
        let is_new = known.pairs.first().is_some_and(|held| held.found.elapsed() < OVERLAP);
        if !keeps && !is_new {
            known.pairs.truncate(1);
        }
        let all = |pairs: &[Held]| {
            pairs.iter().fold(Bundle::default(), |bundle, held| {
                bundle.with(&Bundle::read(&held.pair.authority))
            })
        };
        let ours = all(&known.pairs);
        let former = known.former.clone().with(&known.told);
        known.former = former.without(&ours);
        ours
    }
}

impl Known {
    /// Ours, and those of others: what was there before ours goes after a while, and what came later is somebody's who
    /// knows better. What was ours goes with what it stood for.
    fn trust(&self, ours: &Bundle, registered: &Bundle, now: Instant, time: Time) -> Bundle {
        let others = registered.clone().still_valid(time);
        let is_over = |authority: &Bundle| {
            let seen = self.others.iter().find(|(seen, _)| seen == authority);
            let old = seen.is_some_and(|(_, since)| now.duration_since(*since) >= OVERLAP);
            old || self.former.contains(authority)
        };
        let stays = others.each().filter(|authority| !is_over(authority));
        stays.fold(ours.clone(), |bundle, authority| bundle.with(&authority))
    }

    /// Remembers whose authorities were in the registration before ours.
    fn note_others(&mut self, ours: &Bundle, registered: &Bundle, now: Instant) {
        if !self.told.contains(ours) {
            for authority in registered.each().filter(|authority| !ours.contains(authority)) {
                if !self.others.iter().any(|(seen, _)| *seen == authority) {
                    self.others.push((authority, now));
                }
            }
        }
        self.others.retain(|(seen, _)| registered.contains(seen) && !ours.contains(seen));
    }
}

impl Role {
    /// Looks for certificates, keeps the registration in order, and shows what can be shown. Once at the start, and
    /// whenever it is time.
    pub(super) async fn look_after_certificates(&self) {
        let now = self.clock.now();
        let found = match self.source {
            CertificateSource::Mounted => self.look_at_files(),
            CertificateSource::SelfSigned => self.look_at_secret(now).await,
        };
        // Something must be shown before anybody is sent here.
        self.show(now);
        let registered = self.keep_registered(now).await;
        self.show(now);
        let trouble = found.and(registered).err();
        let mut known = self.certificates.lock();
        if known.trouble != trouble {
            if let Some(why) = &trouble {
                tracing::warn!("{why}");
            } else {
                tracing::info!("certificates and registration are in order again");
            }
            known.trouble = trouble;
        }
    }

    fn look_at_files(&self) -> Result<(), String> {
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
        let own = Bundle::read(&pair.authority);
        if newest.is_some() && !own.is_empty() {
            let believed = own.accepts(&pair.chain, self.config.server_name(), self.clock.now());
            believed.map_err(|why| {
                self.metrics.certificate_refused();
                let (authority, chain) = (files.authority.display(), files.certificate.display());
                format!(
                    "{authority} does not stand for {chain}: {why}; what was shown before is shown on"
                )
            })?;
        }
        self.certificates.take(pair).map_err(|why| {
            self.metrics.certificate_refused();
            let (certificate, key) = (files.certificate.display(), files.key.display());
            format!("{certificate} and {key}: {why}; what was shown before is shown on")
        })
    }

    async fn look_at_secret(&self, now: Time) -> Result<(), String> {
        let secret = &self.config.certificates.secret;
        let wanted = Wanted { names: self.config.names.clone(), lifetime: secret.lifetime };
        let keeper = CertificateSecret::new(self.client.clone(), &secret.namespace, &secret.name)
            .with_stats(self.stats.clone());
        let kept = keeper.keep(&self.permit, &wanted, now).await.map_err(|why| why.to_string())?;
        if kept.is_new {
            let (namespace, name) = (&secret.namespace, &secret.name);
            tracing::info!(namespace, name, "a new certificate was made and is kept in a Secret");
        }
        for pair in kept.pairs.into_iter().rev() {
            self.certificates.take(pair).inspect_err(|_| self.metrics.certificate_refused())?;
        }
        Ok(())
    }

    async fn keep_registered(&self, now: Time) -> Result<(), String> {
        let Some(registration) = &self.registration else {
            // Whoever registers it knows what they do.
            let long_ago = Instant::now().checked_sub(self.config.certificates.settle);
            for held in &mut self.certificates.lock().pairs {
                held.trusted = held.trusted.or(long_ago);
            }
            return Ok(());
        };
        let ours = self.certificates.bundle(self.source == CertificateSource::SelfSigned, now);
        if self.certificates.shown().is_none() {
            return Err("nothing is registered before there is a certificate".to_owned());
        }
        let instant = Instant::now();
        let (extent, patient) = {
            let known = self.certificates.lock();
            let wrong = known.wrong_since.map_or(Duration::ZERO, |since| instant - since);
            let extent = if known.ordered { Extent::Trust } else { Extent::Whole };
            // What we have just got must be told at once; what others took away may be on its way.
            let told = known.told.contains(&ours);
            (extent, known.ordered && told && wrong < GRIEVANCE)
        };
        let trust = |registered: &Bundle| {
            let mut known = self.certificates.lock();
            known.note_others(&ours, registered, instant);
            if patient && !registered.is_empty() && !registered.contains(&ours) {
                known.wrong_since.get_or_insert(instant);
                return registered.clone();
            }
            match self.config.compat {
                Compat::Upstream => ours.clone(),
                Compat::Plimsoll => known.trust(&ours, registered, instant, now),
            }
        };
        let registered = registration.ensure(&self.permit, extent, &trust).await;
        let registered = registered.map_err(|why| {
            self.certificates.lock().registered = None;
            why.to_string()
        })?;
        match registered.change {
            Change::None => {}
            Change::Created => tracing::info!("the webhook is registered"),
            Change::Patched => {
                tracing::info!("the registration of the webhook was brought in order");
            }
        }
        let mut known = self.certificates.lock();
        known.ordered = true;
        if registered.trusts.contains(&ours) {
            known.wrong_since = None;
            known.told = ours;
        }
        let name = self.config.server_name();
        for held in &mut known.pairs {
            let trusted = registered.trusts.accepts(&held.pair.chain, name, now);
            held.trusted = trusted.is_ok().then(|| held.trusted.unwrap_or(instant));
        }
        known.registered = Some(registered.trusts);
        Ok(())
    }

    /// Shows what can be shown now.
    fn show(&self, now: Time) {
        let settle = self.config.certificates.settle;
        let mut known = self.certificates.lock();
        let candidates: Vec<Candidate> = known
            .pairs
            .iter()
            .map(|held| Candidate {
                validity: held.validity,
                trusted: held.trusted.map(|since| since.elapsed()),
            })
            .collect();
        let Some(place) = shown(&candidates, now, settle) else { return };
        let Held { pair, validity, .. } = known.pairs[place].clone();
        if known.shown.as_ref() == Some(&pair) {
            return;
        }
        match certified(&pair.chain, &pair.key) {
            Ok(key) => {
                self.keyring.show(key);
                self.metrics.certificate_shown(validity.ends);
                tracing::info!(until = %validity.ends, "the webhook shows another certificate");
                known.shown = Some(pair);
            }
            Err(why) => tracing::error!(%why, "a certificate that was fine cannot be shown"),
        }
    }
}

/// What is in the files. An authority that is not there is none: whoever registers the webhook may know it.
pub(super) fn read_files(files: &CertificateFiles) -> Result<Pair, String> {
    let read = |path: &Path| fs::read(path).map_err(|why| format!("{}: {why}", path.display()));
    Ok(Pair {
        chain: read(&files.certificate)?,
        key: read(&files.key)?,
        authority: fs::read(&files.authority).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::make;

    const NOW: Time = Time::from_secs(1_800_000_000);

    fn pair() -> Pair {
        let wanted = Wanted { names: vec!["a.svc".to_owned()], lifetime: Duration::from_hours(10) };
        make(&wanted, NOW).expect("made")
    }

    fn authority() -> Bundle {
        Bundle::read(&pair().authority)
    }

    #[test]
    fn what_was_registered_before_goes_after_a_while_and_what_came_later_stays() {
        let (ours, before, later) = (authority(), authority(), authority());
        let mut known = Known::default();
        let start = Instant::now();
        known.note_others(&ours, &before, start);
        let both = ours.clone().with(&before);
        assert_eq!(known.trust(&ours, &before, start, NOW), both, "others still show it");
        assert_eq!(known.trust(&ours, &both, start + OVERLAP, NOW), ours);
        let end = NOW.later(Duration::from_hours(11));
        assert_eq!(known.trust(&ours, &before, start, end), ours, "it has ended");

        known.told = ours.clone();
        let both = ours.clone().with(&later);
        known.note_others(&ours, &both, start);
        assert_eq!(known.trust(&ours, &both, start + OVERLAP, NOW), both, "a replica is ahead");
        known.former = later;
        assert_eq!(known.trust(&ours, &both, start, NOW), ours, "it was ours, and is no more");
    }

    #[test]
    fn the_newest_two_are_kept_and_what_is_shown_whatever_comes() {
        let certificates = Certificates::default();
        let pairs: Vec<Pair> = (0..4).map(|_| pair()).collect();
        certificates.take(pairs[0].clone()).expect("is fine");
        certificates.lock().shown = Some(pairs[0].clone());
        for pair in &pairs[1..] {
            certificates.take(pair.clone()).expect("is fine");
        }
        let held = || -> Vec<Pair> {
            certificates.lock().pairs.iter().map(|held| held.pair.clone()).collect()
        };
        assert_eq!(held(), [pairs[3].clone(), pairs[2].clone(), pairs[0].clone()]);
        assert_eq!(certificates.bundle(true, NOW).len(), 3);
        certificates.take(pairs[2].clone()).expect("is fine");
        assert_eq!(held(), [pairs[2].clone(), pairs[3].clone(), pairs[0].clone()], "back again");
        let mixed = Pair { key: pairs[1].key.clone(), ..pairs[0].clone() };
        certificates.take(mixed).expect_err("they do not belong together");
        let late = NOW.later(Duration::from_hours(11));
        assert_eq!(certificates.bundle(true, late).len(), 1, "the newest, though all have ended");
    }
}
