//! Keys, certificates and kubeconfigs of one cluster, in files that only root may read.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::addresses::{self, API_PORT, API_SERVICE, DOMAIN, MACHINE};
use crate::kubeconfig::kubeconfig;
use crate::pki::{Authority, Identity, Subject, signing_keys};

/// Everything that proves who is who.
#[derive(Debug)]
pub struct Credentials {
    directory: PathBuf,
    authority: Authority,
}

impl Credentials {
    /// Makes them in `directory`; `outside` is the API server's address for a plain shell.
    pub fn make(directory: &Path, outside: &str) -> Result<Self> {
        fs::create_dir(directory)?;
        let credentials =
            Self { directory: directory.to_owned(), authority: Authority::new("kubernetes")? };
        credentials.write("ca.crt", &credentials.authority.certificate())?;
        credentials.write("ca.key", &credentials.authority.key())?;
        credentials.make_servers()?;
        credentials.make_clients(outside)?;
        Ok(credentials)
    }

    /// Where the files are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Certificate of the authority that signs what servers and users of the cluster show.
    pub fn authority(&self) -> String {
        self.authority.certificate()
    }

    /// Certificate and kubeconfig of the kubelet of node `number`.
    pub fn kubelet(&self, number: u8) -> Result<(Identity, String)> {
        let name = addresses::node_name(number);
        let (four, six) = (addresses::node(number), addresses::node_6(number));
        let identity = self.authority.issue(&Subject {
            name: &format!("system:node:{name}"),
            group: Some("system:nodes"),
            hosts: &[&name, &four, &six],
        })?;
        let config = self.config(&inside(), &identity);
        Ok((identity, config))
    }

    /// A kubeconfig for user `name` at the API server's address in the cluster's network.
    pub fn client(&self, name: &str, group: Option<&str>) -> Result<String> {
        let identity = self.authority.issue(&Subject { name, group, hosts: &[] })?;
        Ok(self.config(&inside(), &identity))
    }

    fn config(&self, server: &str, identity: &Identity) -> String {
        kubeconfig(server, &self.authority.certificate(), identity).to_string()
    }

    fn make_servers(&self) -> Result<()> {
        let service = format!("kubernetes.default.svc.{DOMAIN}");
        let hosts = [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            &service,
            "localhost",
            "127.0.0.1",
            MACHINE,
            API_SERVICE,
        ];
        let server = Subject { name: "kube-apiserver", group: None, hosts: &hosts };
        self.save("apiserver", &self.authority.issue(&server)?)?;
        // What the API server shows to kubelets, and its rights there are its own user's.
        let subject = Subject {
            name: "kube-apiserver-kubelet-client",
            group: Some("system:masters"),
            hosts: &[],
        };
        self.save("kubelet-client", &self.authority.issue(&subject)?)?;

        let etcd = Authority::new("etcd")?;
        self.write("etcd-ca.crt", &etcd.certificate())?;
        let server = Subject { name: "etcd", group: None, hosts: &["localhost", "127.0.0.1"] };
        self.save("etcd", &etcd.issue(&server)?)?;
        self.save("etcd-client", &etcd.issue(&Subject { name: "kube-apiserver", ..server })?)?;

        // Another authority: who may speak for others must not be somebody who is just a user.
        let front_proxy = Authority::new("front-proxy")?;
        self.write("front-proxy-ca.crt", &front_proxy.certificate())?;
        let subject = Subject { name: "front-proxy-client", ..Subject::default() };
        self.save("front-proxy", &front_proxy.issue(&subject)?)?;

        let (private, public) = signing_keys()?;
        self.write("service-accounts.key", &private)?;
        self.write("service-accounts.pub", &public)
    }

    fn make_clients(&self, outside: &str) -> Result<()> {
        for (file, user) in [
            ("controller-manager", "system:kube-controller-manager"),
            ("scheduler", "system:kube-scheduler"),
            ("proxy", "system:kube-proxy"),
        ] {
            self.write(&format!("{file}.conf"), &self.client(user, None)?)?;
        }
        let masters = Some("system:masters");
        self.write("kwok.conf", &self.client("kwok", masters)?)?;
        let admin = self.authority.issue(&Subject { name: "admin", group: masters, hosts: &[] })?;
        self.write("admin.conf", &self.config(&inside(), &admin))?;
        self.write("outside.conf", &self.config(outside, &admin))
    }

    fn save(&self, name: &str, identity: &Identity) -> Result<()> {
        self.write(&format!("{name}.crt"), &identity.certificate)?;
        self.write(&format!("{name}.key"), &identity.key)
    }

    fn write(&self, name: &str, content: &str) -> Result<()> {
        use std::io::Write;
        let path = self.directory.join(name);
        let file = fs::File::options().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(content.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

fn inside() -> String {
    format!("https://{MACHINE}:{API_PORT}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_for_their_owner_only_and_the_outside_one_names_its_server() {
        let directory = tempfile::tempdir().unwrap();
        let credentials =
            Credentials::make(&directory.path().join("pki"), "https://127.0.0.1:1").unwrap();
        for entry in fs::read_dir(credentials.directory()).unwrap() {
            let mode = entry.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let outside = credentials.directory().join("outside.conf");
        let outside: serde_json::Value =
            serde_json::from_slice(&fs::read(outside).unwrap()).unwrap();
        assert_eq!(outside["clusters"][0]["cluster"]["server"], "https://127.0.0.1:1");
    }
}
