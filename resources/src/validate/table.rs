//! An object against the table of served fields.

use super::Findings;
use crate::finding::Finding;
use crate::served::{Entry, LATER, Scope, Support, Table};
use crate::types::has_field;
use crate::{Kind, cut};
use serde_json::Value;

/// Said of a field that no object has.
pub(super) const UNKNOWN_FIELD: &str =
    "not a field that is known here: check its spelling, or leave it out";

/// Tells of what is not served, or makes no difference.
pub(super) struct Walk<'a> {
    pub(super) kind: Kind,
    pub(super) table: &'static Table,
    pub(super) scope: Scope,
    pub(super) findings: &'a mut Findings,
}

impl Walk<'_> {
    /// Looks at a value and all that is in it. `plain` is its path in the table, `path` the one with numbers in it.
    pub(super) fn look(&mut self, plain: &str, path: &str, value: &Value) {
        let own = self.table.get(plain);
        let holds_fields = self.table.below(plain).next().is_some();
        if own.is_none() && holds_fields && self.is_refused_whole(plain) && !says_nothing(value) {
            let message = self.whole_reason(plain);
            return self.findings.push(Finding::not_served(path, message));
        }
        if let Some(entry) = own.filter(|entry| holds_fields && self.makes_no_difference(entry)) {
            self.judge(entry, path, value);
            return self.look_inside(&mut plain.split('.').collect(), path, value);
        }
        // A member of a list is judged by itself.
        if let (Some(entry), false) = (own, value.is_array() && holds_fields) {
            self.judge(entry, path, value);
        }
        match value {
            Value::Object(members) if holds_fields => {
                for (name, member) in members {
                    self.look(&format!("{plain}.{name}"), &format!("{path}.{name}"), member);
                }
            }
            Value::Array(members) if holds_fields => {
                for (index, member) in members.iter().enumerate() {
                    self.look(plain, &format!("{path}[{index}]"), member);
                }
            }
            // What has entries below it may be blank; an unknown field is one whatever it holds.
            _ if own.is_none() && !(holds_fields && says_nothing(value)) => {
                self.findings.push(Finding::not_served(path, UNKNOWN_FIELD));
            }
            // Of an object that is taken whole, and may be given.
            _ if own.is_some_and(|entry| !entry.support(self.scope).is_refused()) => {
                self.look_inside(&mut plain.split('.').collect(), path, value);
            }
            _ => {}
        }
    }

    /// Looks for fields that the type of an object does not have, where the table speaks of it whole. Names of users' own, as
    /// in maps, may have dots.
    fn look_inside<'n>(&mut self, names: &mut Vec<&'n str>, path: &str, value: &'n Value) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    let path = format!("{path}.{name}");
                    names.push(name);
                    if has_field(self.kind, names) {
                        self.look_inside(names, &path, member);
                    } else {
                        self.findings.push(Finding::not_served(path, UNKNOWN_FIELD));
                    }
                    names.pop();
                }
            }
            Value::Array(members) => {
                for (index, member) in members.iter().enumerate() {
                    self.look_inside(names, &format!("{path}[{index}]"), member);
                }
            }
            _ => {}
        }
    }

    /// Nothing of what lies in this object is served: that is told once, and not for each field.
    fn is_refused_whole(&self, plain: &str) -> bool {
        self.table.below(plain).all(|entry| entry.support(self.scope).is_refused())
    }

    /// Neither the object nor anything in it makes a difference, for one reason: that too is told once.
    fn makes_no_difference(&self, entry: &Entry) -> bool {
        let support = entry.support(self.scope);
        matches!(support, Support::Harmless(_))
            && self.table.below(entry.path).all(|inner| inner.support(self.scope) == support)
    }

    fn whole_reason(&self, plain: &str) -> &'static str {
        let mut reasons = self.table.below(plain).map(|entry| entry.support(self.scope));
        let first = reasons.next();
        match first {
            Some(Support::Refused(why)) if reasons.all(|other| Some(other) == first) => why,
            _ => LATER,
        }
    }

    /// A map without members, unlike other objects, asks for nothing.
    fn is_empty_map(&self, entry: &Entry, value: &Value) -> bool {
        let any_name = || entry.path.split('.').chain(["any name"]).collect::<Vec<_>>();
        value.as_object().is_some_and(serde_json::Map::is_empty)
            && has_field(self.kind, &any_name())
    }

    fn judge(&mut self, entry: &Entry, path: &str, value: &Value) {
        let written = || value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let refused = |wanted: String| {
            let written = written();
            let message = format!("{} is not served; only {wanted}", cut(&written));
            Finding::not_served(path, message)
        };
        if is_blank(value) {
            return;
        }
        match entry.support(self.scope) {
            Support::Served | Support::Partly(_) => {}
            Support::Only(values) if values.contains(&written().as_str()) => {}
            Support::Only(values) => {
                self.findings.push(refused(format!("{} is", values.join(" or "))));
            }
            Support::Values { served, .. } if served.contains(&written().as_str()) => {}
            Support::Values { warned, why, .. } if warned.contains(&written().as_str()) => {
                self.findings.push(Finding::no_effect(path, format!("{}: {why}", written())));
            }
            Support::Values { served, warned, .. } => {
                let (served, warned) = (served.join(" or "), warned.join(" or "));
                self.findings.push(refused(format!("{served} is, and {warned} with a warning")));
            }
            _ if is_off(value) => {}
            Support::Harmless(_) if self.is_empty_map(entry, value) => {}
            Support::Harmless(why) => self.findings.push(Finding::no_effect(path, why)),
            Support::Refused(why) => self.findings.push(Finding::not_served(path, why)),
            Support::Later => self.findings.push(Finding::not_served(path, LATER)),
        }
    }
}

/// A value that is there, but empty. An object is not: to be there is all that some of them have to say.
fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(members) => members.is_empty(),
        Value::Object(_) | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// A value that is blank, or an object without members where only its members have something to say.
fn says_nothing(value: &Value) -> bool {
    is_blank(value) || value.as_object().is_some_and(serde_json::Map::is_empty)
}

/// What is switched off asks for nothing.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Bool(on) => !on,
        Value::Object(members) => ["enabled", "present"]
            .iter()
            .any(|switch| members.get(*switch) == Some(&Value::Bool(false))),
        _ => false,
    }
}
