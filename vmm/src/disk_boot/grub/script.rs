//! The language: from text to statements.

use std::rc::Rc;

/// Words and marks of one script.
const MAX_TOKENS: usize = 100_000;
/// Blocks within blocks.
const MAX_DEPTH: u32 = 32;

/// A part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Variable {
        name: String,
        /// What it stands for is not split into words.
        is_quoted: bool,
    },
}

/// A word. One without pieces is there, too: it was quoted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) pieces: Vec<Piece>,
    pub(super) is_quoted: bool,
}

impl Word {
    /// Its text, if it has neither quotes nor variables.
    fn bare(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [Piece::Text(text)] if !self.is_quoted => Some(text),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(Word),
    /// The end of a line, or a semicolon.
    End,
    Open,
    Close,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// A command with its arguments.
    Command(Vec<Word>),
    /// Conditions with what they lead to, and what is done if none is met.
    If { branches: Vec<(Block, Block)>, otherwise: Block },
    /// An entry of the menu, or a menu within it.
    Menu { is_submenu: bool, words: Vec<Word>, body: Block },
}

/// Statements one after the other. Entries of menus keep theirs.
pub(super) type Block = Rc<Vec<Statement>>;

/// The statements of a script, as far as it can be understood.
pub(super) fn parse(text: &str) -> Block {
    let tokens = tokens(text);
    let mut parser = Parser { tokens: &tokens, at: 0 };
    let mut all = Vec::new();
    // A stray end of a block is passed over: what is behind it may be good.
    while parser.at < tokens.len() {
        all.extend(parser.block(0, &[]).iter().cloned());
        parser.at += 1;
    }
    Rc::new(all)
}

/// Puts variables of `text` in as a word of a script would, if it is quoted.
pub(super) fn quoted_pieces(text: &str) -> Vec<Piece> {
    let mut lexer = Lexer { rest: text.chars().peekable(), word: None, tokens: Vec::new() };
    lexer.double_quoted(None);
    lexer.word.map(|word| word.pieces).unwrap_or_default()
}

fn tokens(text: &str) -> Vec<Token> {
    let mut lexer = Lexer { rest: text.chars().peekable(), word: None, tokens: Vec::new() };
    lexer.run();
    lexer.tokens
}

struct Lexer<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    /// The word that is being read.
    word: Option<Word>,
    tokens: Vec<Token>,
}

impl Lexer<'_> {
    fn run(&mut self) {
        while let Some(letter) = self.rest.next() {
            if self.tokens.len() >= MAX_TOKENS {
                return;
            }
            match letter {
                '\n' | ';' => self.finish(Token::End),
                letter if letter.is_whitespace() => self.end_word(),
                '#' if self.word.is_none() => {
                    while self.rest.next_if(|letter| *letter != '\n').is_some() {}
                }
                '{' if self.word.is_none() => self.tokens.push(Token::Open),
                '}' if self.word.is_none() => self.tokens.push(Token::Close),
                '\\' => match self.rest.next() {
                    // A line that goes on.
                    Some('\n') | None => {}
                    Some(letter) => self.push(letter),
                },
                '\'' => {
                    self.quote();
                    while let Some(letter) = self.rest.next_if(|letter| *letter != '\'') {
                        self.push(letter);
                    }
                    self.rest.next();
                }
                '"' => {
                    self.quote();
                    self.double_quoted(Some('"'));
                }
                '$' => self.variable(false),
                letter => self.push(letter),
            }
        }
        self.end_word();
    }

    fn double_quoted(&mut self, end: Option<char>) {
        while let Some(letter) = self.rest.next() {
            match letter {
                letter if Some(letter) == end => return,
                '\\' if end.is_some() => match self.rest.next() {
                    Some('\n') | None => {}
                    Some(letter @ ('"' | '\\' | '$')) => self.push(letter),
                    Some(letter) => {
                        self.push('\\');
                        self.push(letter);
                    }
                },
                '$' => self.variable(true),
                letter => self.push(letter),
            }
        }
    }

    /// Behind a dollar sign.
    fn variable(&mut self, is_quoted: bool) {
        let is_name = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
        let mut name = String::new();
        if self.rest.next_if_eq(&'{').is_some() {
            while let Some(letter) = self.rest.next_if(|letter| *letter != '}' && *letter != '\n') {
                name.push(letter);
            }
            self.rest.next_if_eq(&'}');
        } else {
            while let Some(letter) = self.rest.next_if(is_name) {
                name.push(letter);
            }
        }
        if name.is_empty() {
            self.push('$');
        } else {
            let word = self.word.get_or_insert_default();
            word.pieces.push(Piece::Variable { name, is_quoted });
        }
    }

    fn push(&mut self, letter: char) {
        let word = self.word.get_or_insert_default();
        if let Some(Piece::Text(text)) = word.pieces.last_mut() {
            text.push(letter);
        } else {
            word.pieces.push(Piece::Text(letter.into()));
        }
    }

    fn quote(&mut self) {
        self.word.get_or_insert_default().is_quoted = true;
    }

    fn end_word(&mut self) {
        self.tokens.extend(self.word.take().map(Token::Word));
    }

    fn finish(&mut self, token: Token) {
        self.end_word();
        self.tokens.push(token);
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
}

impl Parser<'_> {
    /// Statements up to one of `ends`, or to what closes the block, which is not taken.
    fn block(&mut self, depth: u32, ends: &[&str]) -> Block {
        let mut statements = Vec::new();
        while let Some(token) = self.tokens.get(self.at) {
            match token {
                Token::End => self.at += 1,
                Token::Close => break,
                Token::Open => {
                    // A group: what is in it is done.
                    self.at += 1;
                    let inner = self.nested(depth, &[]);
                    statements.extend(inner.iter().cloned());
                    self.at += 1;
                }
                Token::Word(word) => {
                    if word.bare().is_some_and(|word| ends.contains(&word)) {
                        break;
                    }
                    statements.extend(self.statement(depth));
                }
            }
        }
        Rc::new(statements)
    }

    /// A block within a block. Deeper than that nothing is understood, and all of it is passed.
    fn nested(&mut self, depth: u32, ends: &[&str]) -> Block {
        if depth >= MAX_DEPTH {
            self.at = self.tokens.len();
            return Rc::default();
        }
        self.block(depth + 1, ends)
    }

    fn statement(&mut self, depth: u32) -> Option<Statement> {
        let words = self.words();
        match words.first().and_then(Word::bare) {
            Some("if") => Some(self.condition(depth, words)),
            Some("function") => {
                self.body(depth);
                None
            }
            Some(kind @ ("menuentry" | "submenu" | "hiddenentry")) => {
                let (is_submenu, body) = (kind == "submenu", self.body(depth)?);
                Some(Statement::Menu { is_submenu, words, body })
            }
            Some("for" | "while" | "until") => {
                // No file that was generated loops over something that matters here.
                self.nested(depth, &["done"]);
                self.words();
                None
            }
            _ => Some(Statement::Command(words)),
        }
    }

    /// The words up to the end of the statement, which is not taken.
    fn words(&mut self) -> Vec<Word> {
        let mut words = Vec::new();
        while let Some(Token::Word(word)) = self.tokens.get(self.at) {
            words.push(word.clone());
            self.at += 1;
        }
        words
    }

    /// What stands in braces, if something does.
    fn body(&mut self, depth: u32) -> Option<Block> {
        while self.tokens.get(self.at) == Some(&Token::End) {
            self.at += 1;
        }
        if self.tokens.get(self.at) != Some(&Token::Open) {
            return None;
        }
        self.at += 1;
        let body = self.nested(depth, &[]);
        self.at += 1;
        Some(body)
    }

    /// `words` begin with "if" and go on with its condition, or the beginning of it.
    fn condition(&mut self, depth: u32, words: Vec<Word>) -> Statement {
        let mut branches = Vec::new();
        let mut first = words;
        loop {
            first.remove(0);
            let mut condition = Vec::new();
            if !first.is_empty() {
                condition.push(Statement::Command(std::mem::take(&mut first)));
            }
            condition.extend(self.nested(depth, &["then"]).iter().cloned());
            self.keyword();
            let body = self.nested(depth, &["elif", "else", "fi"]);
            branches.push((Rc::new(condition), body));
            match self.bare_here() {
                Some("elif") => first = self.words(),
                Some("else") => {
                    self.keyword();
                    let otherwise = self.nested(depth, &["fi"]);
                    self.keyword();
                    return Statement::If { branches, otherwise };
                }
                _ => {
                    self.keyword();
                    return Statement::If { branches, otherwise: Rc::default() };
                }
            }
        }
    }

    fn bare_here(&self) -> Option<&str> {
        match self.tokens.get(self.at)? {
            Token::Word(word) => word.bare(),
            _ => None,
        }
    }

    /// Passes a keyword; commands may follow it on its line.
    fn keyword(&mut self) {
        if self.bare_here().is_some() {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(block: &Block) -> Vec<String> {
        let text = |word: &Word| {
            let pieces = word.pieces.iter().map(|piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Variable { name, .. } => format!("<{name}>"),
            });
            pieces.collect::<String>()
        };
        let words = |words: &[Word]| words.iter().map(text).collect::<Vec<_>>().join(" ");
        let one = |statement: &Statement| match statement {
            Statement::Command(command) => words(command),
            Statement::If { branches, otherwise } => {
                let branch = |(condition, body): &(Block, Block)| {
                    format!("{} ? {}", commands(condition).join(","), commands(body).join(","))
                };
                let branches: Vec<String> = branches.iter().map(branch).collect();
                format!("if {} : {}", branches.join(" | "), commands(otherwise).join(","))
            }
            Statement::Menu { words: title, body, .. } => {
                format!("{} {{{}}}", words(title), commands(body).join(","))
            }
        };
        block.iter().map(one).collect()
    }

    #[test]
    fn words_quotes_and_variables() {
        let found =
            parse("set a='x  $y' ; echo \"q $b ${c}d\\\"\" e\\ f#g # comment\nlinux \\\n /k$v ''");
        assert_eq!(commands(&found), ["set a=x  $y", "echo q <b> <c>d\" e f#g", "linux /k<v> "]);
    }

    #[test]
    fn conditions_nest() {
        let found = parse(
            "if [ -s $prefix/grubenv ]; then\n load_env\nfi\nif [ a ]\nthen b; elif [ c ] ; then\n d\n\
             else\n if e; then f; fi\nfi\nlast",
        );
        assert_eq!(
            commands(&found),
            [
                "if [ -s <prefix>/grubenv ] ? load_env : ",
                "if [ a ] ? b | [ c ] ? d : if e ? f : ",
                "last"
            ]
        );
    }

    #[test]
    fn menus_and_functions() {
        let found = parse(
            "function f {\n if x; then y; fi\n}\nfunction g\n{ z; }\nmenuentry 'A {b}' --id a {\n linux /a\n}\n\
             submenu S { menuentry T { linux /t ; } }\nend",
        );
        assert_eq!(
            commands(&found),
            ["menuentry A {b} --id a {linux /a}", "submenu S {menuentry T {linux /t}}", "end"]
        );
    }

    #[test]
    fn loops_are_passed() {
        assert_eq!(commands(&parse("for x in a b; do echo $x; done\nafter")), ["after"]);
    }

    #[test]
    fn unfinished_and_deep_scripts_end() {
        for text in
            ["if", "if if if", "menuentry {", "}", "{{{", "\"", "${", "if a; then b", "fi fi"]
        {
            parse(text);
        }
        parse(&"{ ".repeat(1000));
        parse(&"if a; then ".repeat(1000));
        parse(&"submenu x { ".repeat(100_000));
    }
}
