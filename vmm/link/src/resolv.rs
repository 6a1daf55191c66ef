//! Name servers and search domains, as resolv.conf(5) has them.
//!
//! A guest is told what its host, or its Pod, uses. Servers that only the host can reach (its loopback, or a link of its own)
//! are no use to a guest and are left out; where systemd-resolved listens on the loopback, its own file has the servers
//! it asks, and that one is read instead.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use crate::Addressing;

/// Where the host's programs look.
const HOST: &str = "/etc/resolv.conf";
/// The servers that systemd-resolved asks.
const BEHIND_RESOLVED: &str = "/run/systemd/resolve/resolv.conf";

/// What resolvers ask at most (MAXNS of the C library); the rest of a file is for show.
const MAX_SERVERS: usize = 3;
/// What a DHCP option of 255 bytes could not hold anyway.
const MAX_SEARCH: usize = 32;

/// Name servers and search domains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolver {
    /// Name servers that a guest can reach, in their order.
    pub servers: Vec<IpAddr>,
    /// Domains that short names are looked up in, in their order.
    pub search: Vec<String>,
    /// Name servers that only the host can reach.
    pub unreachable: Vec<String>,
}

impl Resolver {
    /// What the host uses, or the Pod that we are in, by its files. Empty where there are none.
    pub fn of_host() -> Self {
        Self::of_files(Path::new(HOST), Path::new(BEHIND_RESOLVED))
    }

    /// What the text of a resolv.conf says. Lines that make no sense are skipped, as resolvers do.
    pub fn parse(text: &str) -> Self {
        let mut resolver = Self::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver")
                    if resolver.servers.len() + resolver.unreachable.len() < MAX_SERVERS =>
                {
                    resolver.add_server(words.next().unwrap_or_default());
                }
                // The last of them counts.
                Some("search" | "domain") => resolver.search = domains(words),
                _ => {}
            }
        }
        resolver
    }

    /// Has a guest told of these servers, each with the addresses of its own family, and domains.
    pub fn tell(&self, addressing: &mut Addressing) {
        if let Some(told) = &mut addressing.ipv4 {
            told.dns = self.servers.iter().filter_map(ipv4).collect();
        }
        if let Some(told) = &mut addressing.ipv6 {
            told.dns = self.servers.iter().filter_map(ipv6).collect();
        }
        addressing.search.clone_from(&self.search);
    }

    fn of_files(host: &Path, behind_resolved: &Path) -> Self {
        let read = |path: &Path| fs::read_to_string(path).map(|text| Self::parse(&text));
        let resolver = read(host).unwrap_or_default();
        if !resolver.servers.is_empty() || resolver.unreachable.is_empty() {
            return resolver;
        }
        match read(behind_resolved) {
            Ok(behind) if !behind.servers.is_empty() => behind,
            _ => resolver,
        }
    }

    /// Adds a name server behind those that are there, as long as there are not too many. False if it is no address.
    pub fn add_server(&mut self, word: &str) -> bool {
        // An address with a scope (fe80::1%eth0) is one on a link of the host's.
        let bare = word.split('%').next().unwrap_or_default();
        let Ok(address) = bare.parse::<IpAddr>() else { return false };
        let is_link_local =
            matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        let host_only = address.is_loopback() || address.is_unspecified() || is_link_local;
        if host_only {
            self.unreachable.push(word.into());
        } else if !self.servers.contains(&address) && self.servers.len() < MAX_SERVERS {
            self.servers.push(address);
        }
        true
    }

    /// Adds a search domain behind those that are there, as long as there are not too many. False if it is none.
    pub fn add_domain(&mut self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name);
        // The root, which Kubernetes allows, is no domain to look short names up in.
        if name.is_empty() {
            return true;
        }
        if is_domain(name)
            && !self.search.iter().any(|known| known == name)
            && self.search.len() < MAX_SEARCH
        {
            self.search.push(name.into());
        }
        is_domain(name)
    }

    /// Puts the guest into a domain of its own: the first search domain, which the guest takes for its own.
    ///
    /// As in KubeVirt it lies in that of the namespace's services, if there is one; else in the first domain there is.
    pub fn enter_subdomain(&mut self, subdomain: &str) {
        let is_services = |name: &&String| name.split('.').nth(1) == Some("svc");
        let services = self.search.iter().filter(is_services).max_by_key(|name| name.len());
        let parent = services.or(self.search.first());
        let domain = match parent {
            Some(parent) if parent.starts_with(&format!("{subdomain}.")) => parent.clone(),
            Some(parent) => format!("{subdomain}.{parent}"),
            None => subdomain.to_owned(),
        };
        if is_domain(&domain) {
            self.search.retain(|known| *known != domain);
            self.search.insert(0, domain);
            self.search.truncate(MAX_SEARCH);
        }
    }
}

fn ipv4(server: &IpAddr) -> Option<Ipv4Addr> {
    match server {
        IpAddr::V4(server) => Some(*server),
        IpAddr::V6(_) => None,
    }
}

fn ipv6(server: &IpAddr) -> Option<Ipv6Addr> {
    match server {
        IpAddr::V4(_) => None,
        IpAddr::V6(server) => Some(*server),
    }
}

fn domains<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let plain = words.map(|word| word.strip_suffix('.').unwrap_or(word));
    plain.filter(|name| is_domain(name)).take(MAX_SEARCH).map(str::to_owned).collect()
}

/// Whether it is a name that DNS can carry (RFC 1035, 2.3.4), and nothing that a shell or a file could take for more.
fn is_domain(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_file_is_read_whole() {
        let text = "search ns.svc.cluster.local svc.cluster.local cluster.local example.org.\n\
                    nameserver 10.96.0.10\nnameserver fd00::a\noptions ndots:5\n";
        let resolver = Resolver::parse(text);
        assert_eq!(
            resolver.servers,
            ["10.96.0.10".parse::<IpAddr>().unwrap(), "fd00::a".parse().unwrap()]
        );
        let search = ["ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.org"];
        assert_eq!(resolver.search, search);
        assert!(resolver.unreachable.is_empty());
    }

    #[test]
    fn nonsense_and_comments_are_skipped() {
        let text = "# nameserver 1.1.1.1\n;x\nnameserver\nnameserver example.org\nnameserver 1.2.3.4 # ours\n\
                    search a..b $(id) good.example ../etc\nnameserver 1.2.3.4\n";
        let resolver = Resolver::parse(text);
        assert_eq!(resolver.servers, ["1.2.3.4".parse::<IpAddr>().unwrap()]);
        assert_eq!(resolver.search, ["good.example"]);
        assert_eq!(Resolver::parse(""), Resolver::default());
    }

    #[test]
    fn last_search_counts_and_servers_are_three_at_most() {
        let text = "domain first.example\nsearch second.example\nnameserver 1.0.0.1\nnameserver 1.0.0.2\n\
                    nameserver 1.0.0.3\nnameserver 1.0.0.4\n";
        let resolver = Resolver::parse(text);
        assert_eq!(resolver.search, ["second.example"]);
        assert_eq!(resolver.servers.len(), 3);
    }

    #[test]
    fn what_an_object_wants_comes_behind_what_the_host_has() {
        let mut resolver = Resolver::parse("nameserver 192.0.2.1\nsearch host.example\n");
        assert!(resolver.add_server("2001:db8::53") && resolver.add_server("192.0.2.1"));
        assert!(!resolver.add_server("dns.example"));
        assert!(resolver.add_domain("own.example.") && resolver.add_domain("host.example"));
        assert!(resolver.add_domain(".") && !resolver.add_domain("a b"));
        let servers: Vec<IpAddr> =
            ["192.0.2.1", "2001:db8::53"].map(|text| text.parse().unwrap()).into();
        assert_eq!(resolver.servers, servers);
        assert_eq!(resolver.search, ["host.example", "own.example"]);
        assert!(resolver.add_server("192.0.2.2") && resolver.add_server("192.0.2.3"));
        assert_eq!(resolver.servers.len(), 3);
        assert!(resolver.add_server("127.0.0.1"));
        assert_eq!(resolver.unreachable, ["127.0.0.1"]);
    }

    #[test]
    fn subdomain_lies_in_the_services_domain_or_in_the_first() {
        let cases = [
            ("", "sub", "sub"),
            ("search example.org other.example", "sub", "sub.example.org"),
            (
                "search svc.cluster.local ns.svc.cluster.local cluster.local",
                "sub",
                "sub.ns.svc.cluster.local",
            ),
            ("search sub.example.org example.org", "sub", "sub.example.org"),
        ];
        for (text, subdomain, wanted) in cases {
            let mut resolver = Resolver::parse(text);
            resolver.enter_subdomain(subdomain);
            assert_eq!(resolver.search[0], wanted, "{text}");
            assert_eq!(resolver.search.iter().filter(|name| *name == wanted).count(), 1);
        }
    }

    #[test]
    fn servers_of_the_host_alone_are_told_apart() {
        let resolver =
            Resolver::parse("nameserver 127.0.0.53\nnameserver fe80::1%eth0\nnameserver 9.9.9.9\n");
        assert_eq!(resolver.unreachable, ["127.0.0.53", "fe80::1%eth0"]);
        assert_eq!(resolver.servers, ["9.9.9.9".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn file_behind_resolved_is_read_where_the_host_has_only_a_loopback() {
        let folder = tempfile::tempdir().unwrap();
        let (host, behind) = (folder.path().join("host"), folder.path().join("behind"));
        fs::write(&host, "nameserver 127.0.0.53\nsearch stub.example\n").unwrap();
        assert_eq!(Resolver::of_files(&host, &behind).unreachable, ["127.0.0.53"]);

        fs::write(&behind, "nameserver 192.0.2.53\nsearch real.example\n").unwrap();
        let resolver = Resolver::of_files(&host, &behind);
        assert_eq!(resolver.servers, ["192.0.2.53".parse::<IpAddr>().unwrap()]);
        assert_eq!(resolver.search, ["real.example"]);

        fs::write(&host, "nameserver 192.0.2.1\n").unwrap();
        assert!(Resolver::of_files(&host, &behind).search.is_empty());
        assert_eq!(Resolver::of_files(&folder.path().join("none"), &behind), Resolver::default());
    }
}
