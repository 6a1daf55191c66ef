//! What is wrong with a text that is no YAML, in words of whoever wrote it. The parser's own are those of its trade.

use corten_resources::{cut, shown};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::granit_parser::ErrorKind;
use serde_saphyr::{Error, ExternalMessageSource};

use super::documents::{MAX_DEPTH, MAX_DOCUMENTS, MAX_VALUES};

const UNEVEN: &str = "the line is not indented as those around it are";
const NOT_CLOSED: &str = "a bracket is opened and not closed";
const ESCAPE: &str = "a backslash in double quotes is followed by nothing that it can be: write it twice, or take single quotes";
const TAB: &str = "a tab stands where only blanks may: indent with blanks";
const KEY: &str = "a key is a text: put quotes around it, or fill in the braces of a template";
const TAG: &str = "a word that begins with `!` is a tag: put quotes around it if it is a text";
const DIRECTIVE: &str = "a line that begins with `%` tells of YAML itself, and this one is not understood: leave it out";

/// `line 4, column 9: what is wrong there`.
pub(super) fn explained(error: &Error) -> String {
    let place = error.location().filter(|place| place.line() > 0);
    let place = place.map(|at| format!("line {}, column {}: ", at.line(), at.column()));
    format!("{}{}", place.unwrap_or_default(), words(innermost(error)))
}

/// Without the lines around it, and without the place from which it is repeated.
fn innermost(error: &Error) -> &Error {
    match error.without_snippet() {
        Error::AliasError { error, .. } => innermost(error),
        error => error,
    }
}

fn words(error: &Error) -> String {
    match error {
        Error::ExternalMessage { source, msg, .. } => match source.as_ref() {
            ExternalMessageSource::Parser(error) => syntax(error.kind(), msg),
            _ => shown(msg).into_owned(),
        },
        Error::Budget { breach, .. } => limit(breach),
        Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => too_many_aliases(),
        Error::DuplicateMappingKey { key, .. } => match key {
            Some(key) => format!("{} stands there twice", shown(&cut(key))),
            None => "a key stands there twice".to_owned(),
        },
        Error::UnknownAnchor { .. } => {
            "nothing has this name: `*name` repeats what `&name` was written before; a text that begins with `*` needs quotes"
                .to_owned()
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "it repeats what it is itself a part of".to_owned()
        }
        Error::MergeValueNotMapOrSeqOfMaps { .. } => {
            "`<<` takes in an object, or a list of objects".to_owned()
        }
        Error::NonFiniteFloat { .. } => "it is no number that JSON has".to_owned(),
        Error::NullIntoString { .. } | Error::Unexpected { expected: "string scalar", .. } => {
            KEY.to_owned()
        }
        Error::Eof { .. } => "the text ends too early".to_owned(),
        Error::InvalidScalar { .. } | Error::InvalidBinaryBase64 { .. } => {
            "it is not what its tag says: put quotes around it if it is a text".to_owned()
        }
        other => other.render_with_formatter(&serde_saphyr::UserMessageFormatter),
    }
}

/// What a reader of a text says. The few that speak of a text that has nothing else wrong with it are told as they are.
fn syntax(kind: &ErrorKind, said: &str) -> String {
    use ErrorKind as K;
    let text = match kind {
        K::TabNotAllowed
        | K::TabInBlockIndentation
        | K::TabInIndentation
        | K::TabAtBlockScalarStart
        | K::TabInPlainScalar => TAB,
        K::UnexpectedCharacter { character } if character.is_control() => {
            return format!("the character {} belongs in no text", character.escape_default());
        }
        K::UnexpectedCharacter { character } => {
            return format!("a text that begins with {character} needs quotes");
        }
        K::UnclosedQuotedScalar
        | K::InvalidQuotedScalarIndent
        | K::DocumentIndicatorInQuotedScalar => "a quote is opened and not closed",
        K::InvalidTrailingSingleQuotedScalar | K::InvalidTrailingDoubleQuotedScalar => {
            "more follows behind the closing quote"
        }
        K::UnknownQuotedScalarEscape
        | K::InvalidQuotedScalarHexEscape
        | K::InvalidLowSurrogateHexEscape
        | K::InvalidLowSurrogate
        | K::MissingLowSurrogate
        | K::UnpairedLowSurrogate
        | K::InvalidUnicodeEscape => ESCAPE,
        K::UnclosedFlowCollection { open } => return format!("{open} is opened and not closed"),
        K::MismatchedFlowCollectionEnd { open, close } => {
            return format!("{open} is opened, and {close} closes it");
        }
        K::MisplacedFlowCollectionEnd => "a bracket is closed that was not opened",
        K::UnexpectedEofFlowSequence
        | K::UnexpectedEofFlowMapping
        | K::UnexpectedEofImplicitFlowMapping => NOT_CLOSED,
        K::UnexpectedEof | K::UnexpectedEofBlockSequence | K::UnexpectedEofBlockMapping => {
            "the text ends too early"
        }
        K::ExpectedFlowMappingSeparator => "a comma or } is missing",
        K::ExpectedFlowSequenceSeparator => "a comma or ] is missing",
        K::MappingValueNotAllowed | K::InvalidColonPlacement => {
            "a key has one value: a text with a colon in it needs quotes; or the line is not indented as those around it are, or a \
             bracket before it is not closed"
        }
        K::SimpleKeyExpected | K::InvalidSimpleKey => {
            "no `key: value`: the line has no colon, or a text goes on that is not indented"
        }
        K::ExpectedBlockMappingKey
        | K::ExpectedBlockSequenceEntry
        | K::InvalidIndentation
        | K::InvalidFlowScalarIndent
        | K::InvalidBlockScalarIndent
        | K::MappingKeyNotAllowed
        | K::BlockSequenceEntryNotAllowed => UNEVEN,
        K::BlockEntryInFlowCollection | K::PlainScalarStartsWithDashFlowIndicator => {
            "between brackets, members of a list have a comma between them and no dash"
        }
        K::InvalidBlockEntryWhitespace => "behind the dash a blank is missing",
        K::InvalidMappingValueWhitespace | K::FlowMappingValueAdjacentCollection => {
            "behind the colon a blank is missing"
        }
        K::ZeroBlockScalarIndent | K::InvalidBlockScalarHeader => {
            "the text behind `|` or `>` begins in the next line"
        }
        K::CommentNotSeparated | K::CommentInterceptedScalar => {
            "a comment has a blank before it, and does not stand in the middle of a text"
        }
        K::ExpectedDocumentStart | K::InvalidDocumentEnd | K::MissingDocumentEndBeforeDirective => {
            "another document begins here: put a line with `---` before it"
        }
        K::MissingAnchorOrAliasName => {
            "a text that begins with & or * needs quotes, unless a name follows"
        }
        K::BomInsideDocument => "a byte order mark stands only at the beginning",
        K::RecursionLimitExceeded => return levels(),
        K::UndeclaredTagHandle
        | K::ExpectedTagBang
        | K::InvalidTagTerminator
        | K::MissingTagUri
        | K::UnclosedVerbatimTag
        | K::InvalidTagEscape
        | K::InvalidTagUtf8LeadingByte
        | K::InvalidTagUtf8TrailingByte
        | K::InvalidTagUtf8
        | K::InvalidGlobalTagCharacter => TAG,
        K::DuplicateVersionDirective
        | K::UnsupportedYamlMajorVersion
        | K::DuplicateTagDirective
        | K::InvalidDirectiveTerminator
        | K::DirectiveDisallowed
        | K::MissingYamlVersionSeparator
        | K::MissingDirectiveName
        | K::InvalidDirectiveName
        | K::DirectiveByteLimitExceeded { .. }
        | K::TooManyReservedDirectiveParams { .. }
        | K::YamlVersionTooLong
        | K::MissingYamlVersion
        | K::ExpectedTagDirectiveBang
        | K::InvalidTagDirectiveTerminator => DIRECTIVE,
        _ => return shown(said).into_owned(),
    };
    text.to_owned()
}

/// More than a manifest has.
fn limit(breach: &BudgetBreach) -> String {
    match breach {
        BudgetBreach::Depth { .. } => levels(),
        BudgetBreach::Documents { .. } => {
            format!("more than {MAX_DOCUMENTS} documents are in one file")
        }
        BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. } => {
            format!("it has more than {MAX_VALUES} values, aliases written out")
        }
        BudgetBreach::SequenceUnbalanced => NOT_CLOSED.to_owned(),
        BudgetBreach::ScalarBytes { .. } => {
            "its texts come to more than 64 MiB, aliases written out".to_owned()
        }
        _ => too_many_aliases(),
    }
}

fn levels() -> String {
    format!("more than {MAX_DEPTH} levels lie in each other")
}

fn too_many_aliases() -> String {
    "it has too many aliases: write out what they repeat".to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::documents::parse;

    #[test]
    fn mistakes_are_told_in_plain_words_with_their_place() {
        let table = [
            ("a: b: c", "line 1, column 5: a key has one value: "),
            ("a: 1\n b: 2", "line 2, column "),
            ("a: 1\nb", "line 2, column 1: no `key: value`: "),
            ("a:\n\tb: 1", "line 2, column 2: a tab stands where only blanks may"),
            ("a: @b", "line 1, column 4: a text that begins with @ needs quotes"),
            ("a: %b", "line 1, column 4: a text that begins with % needs quotes"),
            ("a: b\0", "line 1, column 5: the character \\u{0} belongs in no text"),
            ("a: \"b", "a quote is opened and not closed"),
            ("a: 'b\nc: d", "a quote is opened and not closed"),
            ("a: 'b' c", "line 1, column 8: more follows behind the closing quote"),
            ("a: \"\\q\"", "line 1, column 4: a backslash in double quotes"),
            ("a: [1, 2", "[ is opened and not closed"),
            ("a: {b: [1}", "line 1, column 8: [ is opened, and } closes it"),
            ("a: [1]]", "line 1, column 7: "),
            ("a: {b: 1 c: 2}", "line 1, column 11: "),
            ("a: *b", "line 1, column 4: nothing has this name: "),
            ("a: *", "line 1, column 4: a text that begins with & or * needs quotes"),
            ("a: &b [*b]", "it repeats what it is itself a part of"),
            ("a: 1\na: 2", "line 2, column 1: a stands there twice"),
            ("\"\\e[1m\": 1\n\"\\e[1m\": 2", "line 2, column 1: \\u{1b}[1m stands there twice"),
            (
                "a: {{ .Values.b }}",
                "line 1, column 5: a key is a text: put quotes around it, or fill in",
            ),
            ("? [a]\n: b", "line 1, column 3: a key is a text"),
            ("~: 1", "line 1, column 1: a key is a text"),
            ("a: .nan", "line 1, column 4: it is no number that JSON has"),
            ("a: !!float b", "it is not what its tag says"),
            ("a: !b!c d", "line 1, column 4: a word that begins with `!` is a tag"),
            ("a:\n  <<: 5", "line 2, column 7: `<<` takes in an object"),
            ("%YAML 2.0\n---\na: 1", "line 1, column 1: a line that begins with `%`"),
            ("{\"a\": 1}\n{\"b\": 2}", "line 2, column 1: another document begins here"),
            ("a: |x\n  b", "the text behind `|` or `>` begins in the next line"),
            ("a: [- 1]", "members of a list have a comma between them and no dash"),
        ];
        let told =
            table.map(|(text, wanted)| (text, wanted, parse("f", text).unwrap_err().to_string()));
        let other: Vec<_> = told
            .iter()
            .filter(|(_, wanted, told)| {
                !told.starts_with("f: line ")
                    || !told.contains(wanted)
                    || told.contains(char::is_control)
            })
            .collect();
        assert!(other.is_empty(), "{other:#?}");
    }

    #[test]
    fn limits_are_named() {
        let deep = |open: &str| open.repeat(3000);
        let table = [
            (deep("["), "more than 64 levels lie in each other"),
            (deep("{a: "), "more than 64 levels lie in each other"),
            (deep("- "), "more than 64 levels lie in each other"),
            ("--- {}\n".repeat(1025), "more than 1024 documents are in one file"),
            (format!("[&a {}, {}]", "x".repeat(1 << 20), "*a,".repeat(70)), "more than 64 MiB"),
        ];
        for (text, wanted) in table {
            let told = parse("f", &text).unwrap_err().to_string();
            assert!(told.contains(wanted) && told.len() < 200, "{told}");
        }
        // Often, and little in all.
        assert!(
            parse("f", &format!("a: [&a x, {}]", "*a,".repeat(10_000)))
                .is_err_and(|error| { error.to_string().contains("apiVersion") })
        );
    }
}
