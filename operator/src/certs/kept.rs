//! The Secret, read and written.

use super::der::{Details, details};
use super::judge::BACKDATED;
use super::make::{Authority, MakeError, authority, server};
use super::{Facts, Lifetimes, SECRET, Span};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rcgen::KeyPair;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::collections::BTreeMap;
use std::sync::Arc;

const AUTHORITY: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const BUNDLE: &str = "bundle.crt";
const SERVER: &str = "tls.crt";
const SERVER_KEY: &str = "tls.key";

/// What is in the Secret, once it was found to be whole.
pub(super) struct Kept {
    authority: Details,
    /// As PEM, the authority that signs first.
    pub(super) bundle: String,
    server: Details,
    server_der: CertificateDer<'static>,
    trusted: Vec<Details>,
    /// For TLS.
    pub(super) certified: Arc<CertifiedKey>,
}

impl Kept {
    /// Reads the Secret; nothing if a part is missing or is not what it should be, whoever did that.
    pub(super) fn read(secret: &Secret) -> Option<Self> {
        let part = |name: &str| text(secret, name);
        let authority_der = CertificateDer::from_pem_slice(part(AUTHORITY)?.as_bytes()).ok()?;
        KeyPair::from_pem(part(AUTHORITY_KEY)?).ok()?;
        let chain = CertificateDer::pem_slice_iter(part(SERVER)?.as_bytes());
        let chain = chain.collect::<Result<Vec<_>, _>>().ok()?;
        let server_der = chain.first()?.clone();
        let key = PrivateKeyDer::from_pem_slice(part(SERVER_KEY)?.as_bytes()).ok()?;
        let certified = CertifiedKey::from_der(chain, key, &default_provider()).ok()?;
        // What signs from now on is trusted, whatever the bundle says.
        let mut bundle = vec![(format!("{}\n", part(AUTHORITY)?.trim()), authority_der.clone())];
        bundle.extend(trusted_in(secret).into_iter().filter(|(_, other)| *other != authority_der));
        Some(Self {
            authority: details(&authority_der)?,
            server: details(&server_der)?,
            trusted: bundle.iter().filter_map(|(_, one)| details(one)).collect(),
            bundle: bundle.into_iter().map(|(text, _)| text).collect(),
            server_der,
            certified: Arc::new(certified),
        })
    }

    /// What is to be judged.
    pub(super) fn facts(&self, names: &[String]) -> Facts {
        let named = names.iter().all(|name| contains(&self.server_der, name.as_bytes()));
        let trusted = self.trusted.iter().any(|one| one.subject == self.server.issuer);
        Facts {
            authority: self.authority.span,
            server: self.server.span,
            signed_by_it: self.server.issuer == self.authority.subject,
            fits: named && trusted,
        }
    }

    /// When the serving certificate expires.
    pub(super) fn expires(&self) -> Timestamp {
        self.server.span.until
    }
}

/// The Secret with a new authority and a new serving certificate. Authorities that were trusted still are.
pub(super) fn all_new(
    old: Option<&Secret>,
    names: &[String],
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Result<Secret, MakeError> {
    let mut secret = with_new_authority(old, lifetimes, now)?;
    renew_server(&mut secret, names, lifetimes, now)?;
    Ok(secret)
}

/// The Secret with a new authority, and the earlier ones in the bundle. The serving certificate stays.
pub(super) fn with_new_authority(
    old: Option<&Secret>,
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Result<Secret, MakeError> {
    let span = Span { from: now - BACKDATED, until: now + lifetimes.authority.duration };
    let Authority { certificate, key } = authority(span)?;
    let mut secret = old.cloned().unwrap_or_else(empty);
    let earlier = trusted_in(&secret).into_iter();
    let valid = earlier.filter(|(_, one)| details(one).is_some_and(|it| it.span.until > now));
    // More than these would be somebody's mistake, and webhooks carry the bundle.
    let earlier: String = valid.take(4).map(|(text, _)| text).collect();
    put(&mut secret, BUNDLE, format!("{certificate}{earlier}"));
    put(&mut secret, AUTHORITY, certificate);
    put(&mut secret, AUTHORITY_KEY, key.serialize_pem());
    Ok(secret)
}

/// The Secret with a new serving certificate.
pub(super) fn with_new_server(
    old: &Secret,
    names: &[String],
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Result<Secret, MakeError> {
    let mut secret = old.clone();
    match renew_server(&mut secret, names, lifetimes, now) {
        Err(MakeError::Foreign) => all_new(Some(old), names, lifetimes, now),
        result => result.map(|()| secret),
    }
}

fn renew_server(
    secret: &mut Secret,
    names: &[String],
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Result<(), MakeError> {
    let authority = text(secret, AUTHORITY)
        .and_then(|pem| CertificateDer::from_pem_slice(pem.as_bytes()).ok())
        .ok_or(MakeError::Foreign)?;
    let key = text(secret, AUTHORITY_KEY).ok_or(MakeError::Foreign)?;
    let key = KeyPair::from_pem(key).map_err(|_| MakeError::Foreign)?;
    // It is worth nothing without who vouches for it.
    let end = details(&authority).ok_or(MakeError::Foreign)?.span.until;
    let until = (now + lifetimes.server.duration).min(end);
    let span = Span { from: now - BACKDATED, until };
    let (certificate, key) = server(names, span, &authority, key)?;
    put(secret, SERVER, certificate);
    put(secret, SERVER_KEY, key);
    Ok(())
}

fn empty() -> Secret {
    let metadata = ObjectMeta {
        name: Some(SECRET.to_owned()),
        labels: Some(BTreeMap::from([
            ("app.kubernetes.io/managed-by".to_owned(), "corten-operator".to_owned()),
            ("app.kubernetes.io/part-of".to_owned(), "corten".to_owned()),
        ])),
        ..Default::default()
    };
    Secret { metadata, type_: Some("Opaque".to_owned()), ..Default::default() }
}

fn text<'a>(secret: &'a Secret, name: &str) -> Option<&'a str> {
    std::str::from_utf8(&secret.data.as_ref()?.get(name)?.0).ok()
}

fn put(secret: &mut Secret, name: &str, value: String) {
    let data = secret.data.get_or_insert_default();
    data.insert(name.to_owned(), ByteString(value.into_bytes()));
}

/// Certificates that are trusted so far, each with its text.
fn trusted_in(secret: &Secret) -> Vec<(String, CertificateDer<'static>)> {
    const END: &str = "-----END CERTIFICATE-----";
    let all = text(secret, BUNDLE).or_else(|| text(secret, AUTHORITY)).unwrap_or_default();
    let blocks = all.split_inclusive(END).map(|block| format!("{}\n", block.trim()));
    blocks
        .filter_map(|block| {
            let certificate = CertificateDer::from_pem_slice(block.as_bytes()).ok()?;
            Some((block, certificate))
        })
        .collect()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::{Verdict, judge};
    use jiff::SignedDuration;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::{ServerName, UnixTime};
    use rustls::{Error, RootCertStore};
    use std::time::Duration;

    const NAME: &str = "corten-operator.kubevirt.svc";

    fn names() -> Vec<String> {
        vec![NAME.to_owned(), "corten-operator.kubevirt.svc.cluster.local".to_owned()]
    }

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600).unwrap() + SignedDuration::from_hours(hours)
    }

    fn made() -> Secret {
        all_new(None, &names(), &Lifetimes::default(), at(0)).unwrap()
    }

    /// As an API server does that was given the bundle.
    fn verify(bundle: &str, served: &Kept, name: &str, now: Timestamp) -> Result<(), Error> {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(root.unwrap()).unwrap();
        }
        let provider = Arc::new(default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let now =
            UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().try_into().unwrap()));
        let name = ServerName::try_from(name).unwrap();
        verifier.verify_server_cert(&served.certified.cert[0], &[], &name, &[], now).map(drop)
    }

    #[test]
    fn what_is_made_is_trusted_for_its_names_and_its_time() {
        let kept = Kept::read(&made()).unwrap();
        verify(&kept.bundle, &kept, NAME, at(1)).unwrap();
        verify(&kept.bundle, &kept, &names()[1], at(23)).unwrap();
        assert!(verify(&kept.bundle, &kept, "other.kubevirt.svc", at(1)).is_err());
        assert!(verify(&kept.bundle, &kept, NAME, at(25)).is_err());
        assert!(verify(&kept.bundle, &kept, NAME, at(-1)).is_err());
        let facts = kept.facts(&names());
        assert!(facts.fits && facts.signed_by_it);
        assert!(matches!(judge(Some(&facts), at(1), &Lifetimes::default()), Verdict::Keep(_)));
    }

    #[test]
    fn through_a_rotation_old_and_new_trust_each_other() {
        let old = made();
        let before = Kept::read(&old).unwrap();
        let rotated = with_new_authority(Some(&old), &Lifetimes::default(), at(20)).unwrap();
        let between = Kept::read(&rotated).unwrap();
        // The certificate is still that of before: who has not heard of the new bundle yet trusts it, and who has as well.
        verify(&before.bundle, &between, NAME, at(21)).unwrap();
        verify(&between.bundle, &between, NAME, at(21)).unwrap();
        let facts = between.facts(&names());
        assert!(facts.fits && !facts.signed_by_it);
        let renewed = with_new_server(&rotated, &names(), &Lifetimes::default(), at(22)).unwrap();
        let after = Kept::read(&renewed).unwrap();
        // A replica that has not read the Secret yet serves the earlier one, and is trusted all the same.
        verify(&after.bundle, &after, NAME, at(23)).unwrap();
        verify(&after.bundle, &before, NAME, at(23)).unwrap();
        assert!(verify(&before.bundle, &after, NAME, at(23)).is_err());
        assert!(after.facts(&names()).signed_by_it);
    }

    #[test]
    fn an_authority_leaves_the_bundle_once_it_has_expired() {
        let second = with_new_authority(Some(&made()), &Lifetimes::default(), at(24)).unwrap();
        let third =
            with_new_authority(Some(&second), &Lifetimes::default(), at(7 * 24 + 1)).unwrap();
        let count = |secret| trusted_in(secret).len();
        assert_eq!([count(&made()), count(&second), count(&third)], [1, 2, 2]);
    }

    #[test]
    fn a_server_never_outlives_its_authority() {
        let late =
            with_new_server(&made(), &names(), &Lifetimes::default(), at(6 * 24 + 12)).unwrap();
        assert_eq!(Kept::read(&late).unwrap().expires(), at(7 * 24));
    }

    #[test]
    fn a_damaged_secret_is_not_used_and_is_made_anew() {
        let others = made();
        for part in [AUTHORITY, AUTHORITY_KEY, SERVER, SERVER_KEY] {
            for damage in [None, Some(""), Some("rubbish"), text(&others, SERVER_KEY)] {
                let mut secret = made();
                let data = secret.data.as_mut().unwrap();
                data.remove(part);
                if let Some(damage) = damage {
                    put(&mut secret, part, damage.to_owned());
                }
                // A key of somebody else is a key, if it is the authority's that was exchanged: what it signs is noticed.
                if Kept::read(&secret).is_some() {
                    assert_eq!((part, damage), (AUTHORITY_KEY, text(&others, SERVER_KEY)));
                }
                let again =
                    with_new_server(&secret, &names(), &Lifetimes::default(), at(1)).unwrap();
                let kept = Kept::read(
                    &all_new(Some(&again), &names(), &Lifetimes::default(), at(1)).unwrap(),
                );
                let kept = kept.unwrap();
                verify(&kept.bundle, &kept, NAME, at(2)).unwrap();
            }
        }
        let mut secret = made();
        secret.data.as_mut().unwrap().remove(BUNDLE);
        let kept = Kept::read(&secret).unwrap();
        verify(&kept.bundle, &kept, NAME, at(2)).unwrap();
    }

    #[test]
    fn other_names_need_another_certificate() {
        let kept = Kept::read(&made()).unwrap();
        assert!(!kept.facts(&["virt-api.kubevirt.svc".to_owned()]).fits);
    }
}
