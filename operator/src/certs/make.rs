//! Makes certificates.

use super::Span;
use super::der::details;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use time::OffsetDateTime;

/// Why a certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum MakeError {
    /// The library refused.
    #[error("cannot make a certificate")]
    Refused(#[from] rcgen::Error),
    /// A time that certificates cannot hold.
    #[error("cannot make a certificate that is valid until {0}")]
    Time(Timestamp),
    /// An authority that was not made as they are made here.
    #[error("the authority is not one that this operator has made")]
    Foreign,
}

/// An authority that was just made.
pub(super) struct Authority {
    /// As PEM.
    pub(super) certificate: String,
    pub(super) key: KeyPair,
}

/// Makes an authority.
pub(super) fn authority(span: Span) -> Result<Authority, MakeError> {
    let key = KeyPair::generate()?;
    let mut params = authority_params(&key);
    (params.not_before, params.not_after) = (moment(span.from)?, moment(span.until)?);
    let made = params.self_signed(&key)?;
    Ok(Authority { certificate: made.pem(), key })
}

/// Everything of an authority but its times. Its name follows from its key, so that two are never taken for each other, and
/// one that was read back signs under the name that it has.
fn authority_params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    // The first byte says how the point is encoded.
    let digits = key.public_key_raw().iter().skip(1).take(8);
    let digits: String = digits.map(|byte| format!("{byte:02x}")).collect();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("corten-operator@{digits}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// Makes a serving certificate for these names: certificate and key, as PEM.
pub(super) fn server(
    names: &[String],
    span: Span,
    authority: &[u8],
    authority_key: KeyPair,
) -> Result<(String, String), MakeError> {
    let mut params = CertificateParams::new(names.to_vec())?;
    (params.not_before, params.not_after) = (moment(span.from)?, moment(span.until)?);
    params.distinguished_name = DistinguishedName::new();
    if let Some(name) = names.first() {
        params.distinguished_name.push(DnType::CommonName, name.as_str());
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let issuer = Issuer::new(authority_params(&authority_key), authority_key);
    let made = params.signed_by(&key, &issuer)?;
    // A release that encodes names otherwise would sign under a name that nobody trusts.
    let signed_by = details(made.der()).map(|details| details.issuer);
    if signed_by != details(authority).map(|details| details.subject) {
        return Err(MakeError::Foreign);
    }
    Ok((made.pem(), key.serialize_pem()))
}

fn moment(time: Timestamp) -> Result<OffsetDateTime, MakeError> {
    OffsetDateTime::from_unix_timestamp(time.as_second()).map_err(|_| MakeError::Time(time))
}
