//! Names of links that are made beside an uplink. They are KubeVirt's, which tools that look into Pods know.

use crate::error::WiringError;
use crate::link::request;

/// Names that go with an uplink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    /// The guest's TAP.
    pub(crate) tap: String,
    /// The bridge between uplink and TAP.
    pub(crate) bridge: String,
    /// The uplink once it is a port of the bridge.
    pub(crate) port: String,
    /// What keeps the uplink's addresses, before it takes the uplink's name.
    pub(crate) keeper: String,
    /// The tables of rules.
    pub(crate) table: String,
}

impl Names {
    /// Those of `uplink`: `eth0`, or `pod` and eleven hexadecimal digits.
    pub(crate) fn of(uplink: &str) -> Result<Self, WiringError> {
        let short = uplink.strip_prefix("pod").filter(|rest| !rest.is_empty()).unwrap_or(uplink);
        let digits = short.strip_prefix("eth").filter(|rest| !rest.is_empty()).unwrap_or(short);
        let names = Self {
            tap: format!("tap{digits}"),
            bridge: format!("k6t-{short}"),
            port: format!("{short}-nic"),
            keeper: format!("{short}-old"),
            table: format!("corten-{uplink}"),
        };
        let links = [uplink, &names.tap, &names.bridge, &names.port, &names.keeper];
        let bad = links.into_iter().find(|name| request(name).is_none()).map(str::to_owned);
        bad.map_or(Ok(names), |name| Err(WiringError::LinkName(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_kubevirt() {
        let names = Names::of("eth0").unwrap();
        assert_eq!((names.tap.as_str(), names.bridge.as_str()), ("tap0", "k6t-eth0"));
        assert_eq!((names.port.as_str(), names.table.as_str()), ("eth0-nic", "corten-eth0"));

        let names = Names::of("pod0123456789a").unwrap();
        assert_eq!(
            (names.tap.as_str(), names.bridge.as_str()),
            ("tap0123456789a", "k6t-0123456789a")
        );
        assert_eq!(names.port, "0123456789a-nic");
    }

    #[test]
    fn uplink_without_room_for_its_bridge_is_refused_by_name() {
        let error = Names::of("an-uplink-12").unwrap_err();
        assert_eq!(
            error.to_string(),
            r#""k6t-an-uplink-12" is not the name of a network interface"#
        );
        assert!(Names::of("eth/0").is_err());
    }
}
