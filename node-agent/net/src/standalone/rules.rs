//! What the host translates for one pair of links.

use std::net::IpAddr;

use super::addresses::Pair;
use crate::cidr::Network;
use crate::masquerade::loopback;
use crate::nft::{Action, Chain, Family, Hook, Match, Rule, Table};
use crate::plan::Port;

/// The tables of one pair: what comes from the namespace leaves with the host's address; `ports` of the host lead there,
/// also from the host itself and its loopback. For that the host's link routes loopback addresses, which the namespace
/// must not use. `ports6` are those of IPv6, where the host has it.
pub(super) fn tables(pair: &Pair, ports: &[Port], ports6: Option<&[Port]>) -> Vec<Table> {
    let mut tables = vec![table(Family::Ipv4, pair.inside.into(), &pair.link(), ports)];
    if let Some(ports6) = ports6 {
        tables.push(table(Family::Ipv6, pair.inside6.into(), &pair.link(), ports6));
    }
    tables
}

fn table(family: Family, inside: IpAddr, link: &str, ports: &[Port]) -> Table {
    let from = || Match::In(link.into());
    let to = || Match::Out(link.into());
    let loopback = loopback(family);
    let itself = Network::new(inside, if inside.is_ipv4() { 32 } else { 128 });
    let forwarded: Vec<_> = Match::ports(ports)
        .into_iter()
        .map(|ports| Rule::new([Match::ToSelf, ports], Action::ToAddress(inside)))
        .collect();
    let chain = |hook, rules| Chain { hook, rules };
    Table {
        family,
        name: link.into(),
        chains: vec![
            chain(
                Hook::Raw,
                vec![
                    Rule::new([from(), Match::Source(loopback)], Action::Drop),
                    Rule::new([from(), Match::Destination(loopback)], Action::Drop),
                ],
            ),
            chain(Hook::Prerouting, forwarded.clone()),
            chain(Hook::Forward, vec![Rule::new([from(), Match::Invalid], Action::Drop)]),
            chain(Hook::Output, forwarded),
            chain(
                Hook::Postrouting,
                vec![
                    Rule::new([from(), Match::NotOut(link.into())], Action::Masquerade),
                    Rule::new([to(), Match::Source(loopback)], Action::Masquerade),
                    // The guest asks for a port of the host's that leads back to it.
                    Rule::new([to(), Match::Source(itself)], Action::Masquerade),
                ],
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::super::addresses::choose;
    use super::*;
    use crate::plan::Protocol;

    #[test]
    fn ports_lead_to_the_namespace_from_everywhere() {
        let ports = [Port { protocol: Protocol::Tcp, number: 8080 }];
        let tables = tables(&choose(&[], 1).unwrap(), &ports, Some(&ports));
        assert_eq!(tables.len(), 2);
        let wanted = "\
table ip corten1 {
  chain raw {
    type filter hook prerouting priority -300
    iifname corten1 ip saddr 127.0.0.0/8 drop
    iifname corten1 ip daddr 127.0.0.0/8 drop
  }
  chain prerouting {
    type nat hook prerouting priority -100
    fib daddr type local tcp dport 8080 dnat to 10.213.0.6
  }
  chain forward {
    type filter hook forward priority 0
    iifname corten1 ct state invalid drop
  }
  chain output {
    type nat hook output priority -100
    fib daddr type local tcp dport 8080 dnat to 10.213.0.6
  }
  chain postrouting {
    type nat hook postrouting priority 100
    iifname corten1 oifname != corten1 masquerade
    oifname corten1 ip saddr 127.0.0.0/8 masquerade
    oifname corten1 ip saddr 10.213.0.6/32 masquerade
  }
}";
        assert_eq!(tables[0].to_string(), wanted);
        assert!(tables[1].to_string().contains("tcp dport 8080 dnat to fd63:6f72:7465:6e00::6"));
    }

    #[test]
    fn many_ports_of_a_protocol_are_one_rule() {
        let of = |protocol| (1..=512).map(move |number| Port { protocol, number });
        let ports: Vec<_> = of(Protocol::Tcp).chain(of(Protocol::Udp)).collect();
        let tables = tables(&choose(&[], 1).unwrap(), &ports, None);
        let table = tables[0].to_string();
        assert_eq!(table.matches("dnat to").count(), 4);
        assert!(table.contains("udp dport { 1, 2, 3, "), "{table}");
    }

    #[test]
    fn without_ports_nothing_of_the_host_leads_there() {
        let tables = tables(&choose(&[], 1).unwrap(), &[], None);
        assert_eq!(tables.len(), 1);
        assert!(!tables[0].to_string().contains("dnat to"));
    }
}
