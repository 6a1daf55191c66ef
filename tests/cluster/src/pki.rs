//! Certificates of one cluster, made when it starts and thrown away with it.

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

/// A certificate authority.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its private key, in PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

/// Whom a certificate speaks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subject<'a> {
    /// Common name: the user's name where Kubernetes reads it.
    pub name: &'a str,
    /// Organization: the user's group.
    pub group: Option<&'a str>,
    /// Host names and addresses a server of that name answers at.
    pub hosts: &'a [&'a str],
}

impl Authority {
    /// A new authority of that name.
    pub fn new(name: &str) -> Result<Self> {
        let mut parameters = parameters(&Subject { name, ..Subject::default() })?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self(CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)?))
    }

    /// Its certificate in PEM.
    pub fn certificate(&self) -> String {
        self.0.pem()
    }

    /// Its key in PEM, for the controller that signs requests for certificates.
    pub fn key(&self) -> String {
        self.0.key().serialize_pem()
    }

    /// A certificate for servers and clients.
    pub fn issue(&self, subject: &Subject<'_>) -> Result<Identity> {
        let mut parameters = parameters(subject)?;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = parameters
            .signed_by(&key, &self.0)
            .with_context(|| format!("cannot sign the certificate of {}", subject.name))?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// The key pair that service account tokens are signed with: private and public key in PEM.
pub fn signing_keys() -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

fn parameters(subject: &Subject<'_>) -> Result<CertificateParams> {
    let hosts: Vec<String> = subject.hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut parameters = CertificateParams::new(hosts)
        .with_context(|| format!("{:?} are not all names of hosts", subject.hosts))?;
    parameters.distinguished_name.push(DnType::CommonName, subject.name);
    if let Some(group) = subject.group {
        parameters.distinguished_name.push(DnType::OrganizationName, group);
    }
    // A restored node has its clock set within seconds; a day covers any doubt.
    let now = OffsetDateTime::now_utc();
    parameters.not_before = now - Duration::days(1);
    parameters.not_after = now + Duration::days(90);
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// What openssl, which shares no code with us, reads in it.
    fn openssl(arguments: &[&str], input: &str) -> String {
        let mut child = Command::new("openssl")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    #[test]
    fn certificate_names_user_group_and_hosts() {
        let authority = Authority::new("ca").unwrap();
        let hosts = ["node1", "10.99.0.1", "fd99::1"];
        let subject =
            Subject { name: "system:node:node1", group: Some("system:nodes"), hosts: &hosts };
        let identity = authority.issue(&subject).unwrap();

        let text = openssl(&["x509", "-noout", "-text"], &identity.certificate);
        for expected in [
            "CN = system:node:node1",
            "O = system:nodes",
            "DNS:node1",
            "IP Address:10.99.0.1",
            "IP Address:FD99:0:0:0:0:0:0:1",
            "TLS Web Client Authentication",
        ] {
            assert!(text.contains(expected), "{expected} is not in {text}");
        }
    }

    #[test]
    fn certificate_is_verified_by_its_authority_and_by_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let [authority, other] = ["ca", "other"].map(|name| Authority::new(name).unwrap());
        let identity = authority.issue(&Subject { name: "admin", ..Subject::default() }).unwrap();
        for (signer, verdict) in [(&authority, "OK"), (&other, "verification failed")] {
            let path = directory.path().join("ca.crt");
            std::fs::write(&path, signer.certificate()).unwrap();
            let arguments = ["verify", "-CAfile", path.to_str().unwrap()];
            let said = openssl(&arguments, &identity.certificate);
            assert!(said.contains(verdict), "{said}");
        }
    }

    #[test]
    fn service_account_keys_are_a_pair() {
        let (private, public) = signing_keys().unwrap();
        assert_eq!(openssl(&["pkey", "-pubout"], &private), public);
    }
}
