//! Carries statements out.

use std::collections::BTreeMap;

use super::environment;
use super::menu::{Action, MenuEntry, choose};
use super::script::{Block, Piece, Statement, Word, parse, quoted_pieces};
use super::test;
use crate::disk_boot::bls;
use crate::disk_boot::entry::{
    BootEntry, MAX_COMMAND_LINE, MAX_CONFIGURATION, MAX_ENTRIES, MAX_INITRDS, Place, absolute,
    parent, shown,
};
use crate::disk_boot::volumes::Volumes;

/// Statements that are carried out for one configuration.
const MAX_STEPS: u32 = 50_000;
/// Files that are read.
const MAX_FILES: u32 = 16;
/// Blocks within blocks, files within files.
const MAX_DEPTH: u32 = 48;
const MAX_VARIABLES: usize = 512;
/// Bytes of all words of one statement.
const MAX_WORDS: usize = 256 << 10;
/// Bytes of words that count as a step.
const STEP_BYTES: usize = 256;
const MAX_MENU: usize = 512;
/// Menus within menus.
const MAX_MENUS: u32 = 4;

/// What GRUB of this release for a BIOS says of itself: what generated files ask for.
const VARIABLES: [(&str, &str); 8] = [
    ("grub_platform", "pc"),
    ("grub_cpu", "i386"),
    ("feature_menuentry_id", "y"),
    ("feature_timeout_style", "y"),
    ("feature_default_font_path", "y"),
    ("feature_platform_search_hint", "y"),
    ("feature_all_video_module", "y"),
    ("feature_nativedisk_cmd", "y"),
];

/// What comes after a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// The next one; this one was true or false.
    GoOn(bool),
    /// Nothing: another configuration took over, or enough was done.
    Stop,
}

/// What a menu entry has loaded.
#[derive(Clone, Debug, Default)]
struct Loaded {
    kernel: Option<Place>,
    initrds: Vec<Place>,
    command_line: String,
}

/// GRUB's state.
#[derive(Clone)]
pub(super) struct Interpreter<'a, 'b> {
    volumes: &'a Volumes<'b>,
    variables: BTreeMap<String, String>,
    menu: Vec<MenuEntry>,
    loaded: Loaded,
    steps: u32,
    files: u32,
    depth: u32,
}

impl<'a, 'b> Interpreter<'a, 'b> {
    /// GRUB as it starts with its configuration at `path` of a volume.
    pub(super) fn new(volumes: &'a Volumes<'b>, volume: usize, path: &str) -> Self {
        let device = volumes.device(volume);
        let mut variables: BTreeMap<String, String> =
            VARIABLES.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        variables.insert("prefix".into(), format!("({device}){}", parent(path)));
        variables.insert("cmdpath".into(), format!("({device}){}", parent(path)));
        variables.insert("root".into(), device);
        Self {
            volumes,
            variables,
            menu: Vec::new(),
            loaded: Loaded::default(),
            steps: 0,
            files: 0,
            depth: 0,
        }
    }

    /// What can be booted by the configuration at `path`, the default first; and what was passed over.
    pub(super) fn boot_entries(mut self, path: &str) -> (Vec<BootEntry>, Vec<String>) {
        self.run_file(path);
        self.finish()
    }

    /// The same of a script that is in no file.
    #[cfg(feature = "fuzz")]
    pub(super) fn boot_entries_of(mut self, text: &str) -> (Vec<BootEntry>, Vec<String>) {
        self.run(&parse(text));
        self.finish()
    }

    fn finish(mut self) -> (Vec<BootEntry>, Vec<String>) {
        let default = self.variables.get("default").cloned().unwrap_or_default();
        let mut found = Found::default();
        // Without a menu a configuration may boot something itself.
        let loaded = std::mem::take(&mut self.loaded);
        found.take("grub.cfg", loaded);
        found.collect(&self, Some(&default), MAX_MENUS);
        found.collect(&self, None, MAX_MENUS);
        (found.entries, found.passed_over)
    }

    fn run_file(&mut self, path: &str) -> Option<Flow> {
        if self.files >= MAX_FILES {
            return None;
        }
        self.files += 1;
        let text = self.read(path, MAX_CONFIGURATION)?;
        Some(self.run(&parse(&String::from_utf8_lossy(&text))))
    }

    fn run(&mut self, block: &Block) -> Flow {
        if self.depth >= MAX_DEPTH {
            return Flow::Stop;
        }
        self.depth += 1;
        let mut flow = Flow::GoOn(true);
        for statement in block.iter() {
            self.steps += 1;
            flow = if self.steps > MAX_STEPS { Flow::Stop } else { self.step(statement) };
            if flow == Flow::Stop {
                break;
            }
        }
        self.depth -= 1;
        flow
    }

    fn step(&mut self, statement: &Statement) -> Flow {
        match statement {
            Statement::Command(words) => {
                let words = self.expand(words);
                self.command(&words)
            }
            Statement::If { branches, otherwise } => {
                for (condition, body) in branches {
                    match self.run(condition) {
                        Flow::GoOn(true) => return self.run(body),
                        Flow::GoOn(false) => {}
                        Flow::Stop => return Flow::Stop,
                    }
                }
                self.run(otherwise)
            }
            Statement::Menu { is_submenu, words, body } => {
                let words = self.expand(words);
                let action = if *is_submenu { Action::Submenu } else { Action::Run };
                self.add(menu_entry(&words, action(body.clone())));
                Flow::GoOn(true)
            }
        }
    }

    fn add(&mut self, entry: MenuEntry) {
        if self.menu.len() < MAX_MENU {
            self.menu.push(entry);
        }
    }

    fn command(&mut self, words: &[String]) -> Flow {
        let Some((name, arguments)) = words.split_first() else { return Flow::GoOn(true) };
        if let Some((variable, value)) = name.split_once('=').filter(|_| arguments.is_empty()) {
            self.set(variable, value);
            return Flow::GoOn(true);
        }
        let is_true = match name.as_str() {
            "set" => {
                if let Some((variable, value)) =
                    arguments.first().and_then(|word| word.split_once('='))
                {
                    self.set(variable, value);
                }
                true
            }
            "unset" => {
                arguments.iter().for_each(|variable| drop(self.variables.remove(variable)));
                true
            }
            "[" => {
                let words = arguments.split_last().filter(|(last, _)| *last == "]");
                words.is_some_and(|(_, words)| self.test(words))
            }
            "test" => self.test(arguments),
            "load_env" => self.load_environment(arguments),
            "search" | "search.fs_uuid" | "search.fs_label" | "search.file" => {
                self.search(name, arguments)
            }
            "configfile" | "normal" if !arguments.is_empty() => {
                let menu = std::mem::take(&mut self.menu);
                if self.run_file(&arguments[0]).is_some() {
                    return Flow::Stop;
                }
                self.menu = menu;
                false
            }
            "source" | "." if !arguments.is_empty() => match self.run_file(&arguments[0]) {
                Some(flow) => return flow,
                None => false,
            },
            "blscfg" => self.boot_loader_entries(),
            "linux" | "linux16" | "linuxefi" if !arguments.is_empty() => {
                self.load_kernel(arguments)
            }
            "initrd" | "initrd16" | "initrdefi" => {
                let places: Option<Vec<Place>> =
                    arguments.iter().map(|path| self.place(path)).collect();
                let places = places.unwrap_or_default();
                self.loaded.initrds.extend(places.into_iter().take(MAX_INITRDS));
                self.loaded.initrds.truncate(MAX_INITRDS);
                true
            }
            // There is no screen, no key is pressed, and nothing else is started.
            "false" | "loadfont" | "keystatus" | "background_image" | "chainloader"
            | "multiboot" | "multiboot2" => false,
            // True of every x86_64 machine, or without an effect that matters here.
            _ => true,
        };
        Flow::GoOn(is_true)
    }

    fn set(&mut self, name: &str, value: &str) {
        let is_known = self.variables.contains_key(name);
        if value.len() <= MAX_COMMAND_LINE && (is_known || self.variables.len() < MAX_VARIABLES) {
            self.variables.insert(name.into(), value.into());
        }
    }

    fn test(&self, words: &[String]) -> bool {
        test::is_true(words, &|kind, path| {
            let Some(place) = self.place(path) else { return false };
            let Some(files) = self.volumes.files(place.volume) else { return false };
            match kind {
                'd' => files.is_directory(&place.path),
                's' => files.size(&place.path).is_ok_and(|size| size > 0),
                'f' => files.is_file(&place.path),
                _ => files.is_file(&place.path) || files.is_directory(&place.path),
            }
        })
    }

    /// Words as a command gets them. Long ones take steps, too: a value may be doubled again and again.
    fn expand(&mut self, words: &[Word]) -> Vec<String> {
        let mut all = Vec::new();
        let mut length = 0;
        for word in words {
            let mut text = word.is_quoted.then(String::new);
            for piece in &word.pieces {
                let Piece::Variable { name, is_quoted: false } = piece else {
                    self.put(piece, text.get_or_insert_default());
                    continue;
                };
                let value = self.variables.get(name).map(String::as_str).unwrap_or_default();
                // What stands before and behind a blank are words of their own.
                for (number, part) in value.split(char::is_whitespace).enumerate() {
                    if number > 0 {
                        all.extend(text.take());
                    }
                    if !part.is_empty() {
                        text.get_or_insert_default().push_str(part);
                    }
                }
                length += value.len();
                if length > MAX_WORDS {
                    break;
                }
            }
            length += text.as_ref().map_or(0, String::len);
            all.extend(text);
            if length > MAX_WORDS {
                break;
            }
        }
        self.steps =
            self.steps.saturating_add(u32::try_from(length / STEP_BYTES).unwrap_or(u32::MAX));
        all
    }

    fn put(&self, piece: &Piece, text: &mut String) {
        let part = match piece {
            Piece::Text(part) => Some(part),
            Piece::Variable { name, .. } => self.variables.get(name),
        };
        if text.len() <= MAX_COMMAND_LINE {
            text.push_str(part.map(String::as_str).unwrap_or_default());
        }
    }

    /// A text with variables in it, as one word.
    fn expand_text(&self, text: &str) -> String {
        let mut expanded = String::new();
        quoted_pieces(text).iter().for_each(|piece| self.put(piece, &mut expanded));
        expanded.truncate(expanded.floor_char_boundary(MAX_COMMAND_LINE));
        expanded.trim().into()
    }

    /// The file that a path means: `(hd0,gpt2)/path`, or one of the volume that is the root now.
    fn place(&self, path: &str) -> Option<Place> {
        let (device, path) = match path.strip_prefix('(') {
            Some(rest) => rest.split_once(')')?,
            None => (self.variables.get("root")?.as_str(), path),
        };
        let volume = self.volumes.by_device(device)?;
        Some(Place { volume, path: absolute("", path) })
    }

    fn read(&self, path: &str, limit: u64) -> Option<Vec<u8>> {
        let place = self.place(path)?;
        self.volumes.files(place.volume)?.read(&place.path, limit).ok()
    }

    fn load_environment(&mut self, arguments: &[String]) -> bool {
        let mut file = None;
        let mut wanted = Vec::new();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "-f" | "--file" => file = arguments.next().cloned(),
                option if option.starts_with("--file=") => file = Some(option[7..].into()),
                option if option.starts_with('-') => {}
                name => wanted.push(name),
            }
        }
        let prefix = self.variables.get("prefix").cloned().unwrap_or_default();
        let file = file.unwrap_or_else(|| format!("{prefix}/grubenv"));
        let Some(block) = self.read(&file, environment::MAX_SIZE) else { return false };
        for (name, value) in environment::parse(&block) {
            if wanted.is_empty() || wanted.contains(&name.as_str()) {
                self.set(&name, &value);
            }
        }
        true
    }

    /// Looks for a volume. `search.fs_uuid` and its like have no options, but the name of a variable behind what they want.
    fn search(&mut self, command: &str, arguments: &[String]) -> bool {
        let mut kind = command.strip_prefix("search.").unwrap_or("file");
        let mut variable = "root".to_owned();
        let mut wanted = None;
        for argument in arguments {
            match argument.as_str() {
                "-u" | "--fs-uuid" => kind = "fs_uuid",
                "-l" | "--label" | "--fs-label" => kind = "fs_label",
                "-f" | "--file" => kind = "file",
                option if option.starts_with("--set=") => variable = option[6..].into(),
                option if option.starts_with('-') => {}
                _ if wanted.is_none() => wanted = Some(argument.clone()),
                name if command != "search" && !name.contains(',') => variable = name.into(),
                _ => {}
            }
        }
        let found = wanted.and_then(|wanted| match kind {
            "fs_uuid" => self.volumes.by_uuid(&wanted),
            "fs_label" => self.volumes.by_label(&wanted),
            _ => self.volumes.by_file(&absolute("", &wanted)),
        });
        let Some(volume) = found else { return false };
        self.set(&variable, &self.volumes.device(volume));
        true
    }

    fn load_kernel(&mut self, arguments: &[String]) -> bool {
        let Some(kernel) = self.place(&arguments[0]) else { return false };
        let quoted = |word: &String| {
            if word.contains(char::is_whitespace) { format!("\"{word}\"") } else { word.clone() }
        };
        let words: Vec<String> = arguments[1..].iter().map(quoted).collect();
        let command_line = words.join(" ");
        self.loaded = Loaded { kernel: Some(kernel), initrds: Vec::new(), command_line };
        true
    }

    /// Adds entries of the Boot Loader Specification to the menu, as Fedora's GRUB does.
    fn boot_loader_entries(&mut self) -> bool {
        let devices = ["boot", "root"].iter().filter_map(|name| self.variables.get(*name));
        let volumes: Vec<usize> =
            devices.filter_map(|device| self.volumes.by_device(device)).collect();
        let own = self.variables.get("blsdir").cloned();
        let directories = own.iter().map(String::as_str).chain(bls::DIRECTORIES);
        for directory in directories {
            for volume in &volumes {
                let Some(files) = self.volumes.files(*volume) else { continue };
                let entries = bls::entries(files, directory);
                if entries.is_empty() {
                    continue;
                }
                for mut entry in entries {
                    let fallback = ["kernelopts", "default_kernelopts"];
                    let fallback = fallback.iter().find_map(|name| self.variables.get(*name));
                    entry.options = entry.options.or_else(|| fallback.cloned());
                    let boot = entry.boot((*volume, files), &|text| self.expand_text(text));
                    let (title, id) = (boot.title.clone(), Some(entry.id.clone()));
                    self.add(MenuEntry { title, id, action: Action::Boot(boot) });
                }
                return true;
            }
        }
        false
    }
}

/// `words` are those of a menuentry or submenu.
fn menu_entry(words: &[String], action: Action) -> MenuEntry {
    let (mut title, mut id) = (None, None);
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--id" => id = words.next().cloned(),
            "--class" | "--users" | "--hotkey" => drop(words.next()),
            word if word.starts_with("--id=") => id = Some(word[5..].into()),
            word if word.starts_with("--") => {}
            word if title.is_none() => title = Some(word.to_owned()),
            _ => {}
        }
    }
    MenuEntry { title: title.unwrap_or_default(), id, action }
}

/// What a menu leads to.
#[derive(Default)]
struct Found {
    entries: Vec<BootEntry>,
    passed_over: Vec<String>,
    steps: u32,
}

impl Found {
    /// Takes the entry that `default` names, or all entries.
    fn collect(&mut self, at: &Interpreter<'_, '_>, default: Option<&str>, menus: u32) {
        let chosen = default.map(|default| {
            let first = || at.menu.first().map(|entry| (entry, String::new()));
            choose(&at.menu, default).or_else(first)
        });
        let entries: Vec<(&MenuEntry, Option<String>)> = match &chosen {
            Some(chosen) => {
                chosen.iter().map(|(entry, rest)| (*entry, Some(rest.clone()))).collect()
            }
            None => at.menu.iter().map(|entry| (entry, None)).collect(),
        };
        for (entry, rest) in entries {
            if self.entries.len() >= MAX_ENTRIES || self.steps > MAX_STEPS {
                return;
            }
            let (body, is_submenu) = match &entry.action {
                Action::Boot(boot) => {
                    self.add(boot.clone());
                    continue;
                }
                Action::Run(body) => (body, false),
                Action::Submenu(body) => (body, true),
            };
            let mut state = Interpreter { menu: Vec::new(), steps: self.steps, ..at.clone() };
            state.set("chosen", &entry.title);
            state.run(body);
            self.steps = state.steps;
            if is_submenu && menus > 0 {
                self.collect(&state, rest.as_deref(), menus - 1);
            } else if !is_submenu {
                self.take(&entry.title, state.loaded);
            }
        }
    }

    fn take(&mut self, title: &str, loaded: Loaded) {
        let Loaded { kernel, initrds, command_line } = loaded;
        match kernel {
            Some(kernel) => {
                self.add(BootEntry { title: title.into(), kernel, initrds, command_line });
            }
            None if title != "grub.cfg" && self.passed_over.len() < MAX_ENTRIES => {
                let note =
                    format!("{:?} loads no Linux from a volume that can be read", shown(title));
                if !self.passed_over.contains(&note) {
                    self.passed_over.push(note);
                }
            }
            None => {}
        }
    }

    /// The default is also among all the others.
    fn add(&mut self, entry: BootEntry) {
        if self.entries.len() < MAX_ENTRIES && !self.entries.contains(&entry) {
            self.entries.push(entry);
        }
    }
}
