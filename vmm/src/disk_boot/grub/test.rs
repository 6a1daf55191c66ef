//! `[ ... ]`: what a test says. No parentheses: no generated file has them.

/// Whether the words between the brackets are true. `files` answers questions about files: of which kind, and which.
pub(super) fn is_true(words: &[String], files: &dyn Fn(char, &str) -> bool) -> bool {
    // "or" of "and"s.
    words
        .split(|word| word == "-o")
        .any(|or| or.split(|word| word == "-a").all(|and| holds(and, files)))
}

fn holds(words: &[String], files: &dyn Fn(char, &str) -> bool) -> bool {
    let mut words = words;
    let mut is_wanted = true;
    while let [mark, rest @ ..] = words
        && mark == "!"
        && !rest.is_empty()
    {
        (words, is_wanted) = (rest, !is_wanted);
    }
    let found = match words {
        [] => false,
        [word] => !word.is_empty(),
        [option, word] => match option.as_str() {
            "-n" => !word.is_empty(),
            "-z" => word.is_empty(),
            "-d" => files('d', word),
            "-e" => files('e', word),
            "-f" => files('f', word),
            "-s" => files('s', word),
            _ => false,
        },
        [left, operator, right] => compare(left, operator, right),
        _ => false,
    };
    found == is_wanted
}

fn compare(left: &str, operator: &str, right: &str) -> bool {
    let number = |text: &str| text.trim().parse::<i64>().unwrap_or(0);
    let numbers = number(left).cmp(&number(right));
    match operator {
        "=" | "==" => left == right,
        "!=" => left != right,
        "<" => left < right,
        "<=" => left <= right,
        ">" => left > right,
        ">=" => left >= right,
        "-eq" => numbers.is_eq(),
        "-ne" => numbers.is_ne(),
        "-lt" => numbers.is_lt(),
        "-le" => numbers.is_le(),
        "-gt" => numbers.is_gt(),
        "-ge" => numbers.is_ge(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(text: &str) -> bool {
        let words: Vec<String> = text.split(' ').map(|word| word.replace('_', "")).collect();
        is_true(&words, &|kind, path| (kind, path) == ('s', "/grubenv"))
    }

    #[test]
    fn tests_say_what_is_true() {
        for text in [
            "a",
            "a = a",
            "a != b",
            "-s /grubenv",
            "! _",
            "2 -lt 10",
            "-z _",
            "a = b -o c",
            "b > a",
        ] {
            assert!(says(text), "{text}");
        }
        for text in [
            "_",
            "a = b",
            "-f /grubenv",
            "! a",
            "10 -lt 2",
            "a -a b = c",
            "! ! _",
            "-x y",
            "a b c d",
        ] {
            assert!(!says(text), "{text}");
        }
        assert!(!is_true(&[], &|_, _| true));
    }
}
