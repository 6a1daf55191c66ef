//! Errors as text for the log.

use std::error::Error;

/// An error and its causes, each once: some libraries put the cause into their own text, others do not.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = match error.downcast_ref::<kube::Error>() {
            // Its own text has every field of the answer once more.
            Some(kube::Error::Api(status)) => status.message.clone(),
            _ => error.to_string(),
        };
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        // The answer itself comes below the client's error, and was told with it.
        cause = if error.is::<kube::Error>() { None } else { error.source() };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open the door")]
    struct Outer(#[source] std::io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("it failed: {0}")]
    struct Repeating(#[source] Outer);

    #[derive(Debug, thiserror::Error)]
    #[error("cannot create it")]
    struct Refused(#[source] kube::Error);

    #[test]
    fn a_refusal_of_the_api_server_is_told_in_its_own_words() {
        let status =
            kube::core::Status { code: 403, message: "over quota".into(), ..Default::default() };
        let error = Refused(kube::Error::Api(Box::new(status)));
        assert_eq!(chain(&error), "cannot create it: over quota");
    }

    #[test]
    fn every_cause_is_told_once() {
        let inner = Outer(std::io::Error::other("it is locked"));
        assert_eq!(chain(&Repeating(inner)), "it failed: cannot open the door: it is locked");
    }
}
