//! How a registry asks who one is (RFC 9110, section 11.6.1).

/// What it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// A login.
    Basic,
    /// A token of this service.
    Bearer { realm: String, service: Option<String> },
}

impl Challenge {
    /// Reads a header's value. One of another kind is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (scheme, parameters) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let parameters = parameters_of(parameters);
        let value = |name: &str| {
            let found = parameters.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.clone())
        };
        Some(Self::Bearer { realm: value("realm")?, service: value("service") })
    }
}

/// `name="value", name=value`; a backslash keeps the character behind it.
fn parameters_of(text: &str) -> Vec<(String, String)> {
    let mut parameters = Vec::new();
    let mut rest = text.chars().peekable();
    loop {
        let skip = |character: &char| matches!(character, ',' | ' ' | '\t');
        while rest.next_if(skip).is_some() {}
        let mut name = String::new();
        while let Some(character) = rest.next_if(|character| *character != '=' && *character != ',')
        {
            name.push(character);
        }
        if rest.next_if_eq(&'=').is_none() {
            return parameters;
        }
        let mut value = String::new();
        if rest.next_if_eq(&'"').is_some() {
            while let Some(character) = rest.next() {
                match character {
                    '"' => break,
                    '\\' => value.extend(rest.next()),
                    _ => value.push(character),
                }
            }
        } else {
            while let Some(character) = rest.next_if(|character| *character != ',') {
                value.push(character);
            }
        }
        parameters.push((name.trim().to_owned(), value));
    }
}

/// A value as it stands in a query (RFC 3986, section 2).
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_of_known_registries_are_read() {
        let docker = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/alpine:pull""#;
        let expected = Challenge::Bearer {
            realm: "https://auth.docker.io/token".into(),
            service: Some("registry.docker.io".into()),
        };
        assert_eq!(Challenge::parse(docker), Some(expected));
        assert_eq!(Challenge::parse(r#"Basic realm="Registry""#), Some(Challenge::Basic));
        let plain = Challenge::Bearer { realm: "https://a/\"b".into(), service: None };
        assert_eq!(Challenge::parse(r#"bearer error=x, Realm="https://a/\"b""#), Some(plain));
        for text in
            ["", "Digest realm=x", "Bearer", "Bearer realm", "Bearer service=\"", "Bearer ,=,=\"\\"]
        {
            assert_eq!(Challenge::parse(text), None, "{text}");
        }
    }

    #[test]
    fn queries_hold_no_character_with_a_meaning() {
        assert_eq!(encoded("repository:a/b:pull"), "repository:a/b:pull");
        assert_eq!(encoded("a b&c=ä?"), "a%20b%26c%3D%C3%A4%3F");
    }
}
