//! extlinux.conf, syslinux.cfg and isolinux.cfg, as far as they boot Linux: labels with a kernel, initial RAM disks and a
//! command line. Menus, other programs and everything that draws is passed over.

use super::entry::{
    BootEntry, MAX_COMMAND_LINE, MAX_CONFIGURATION, MAX_ENTRIES, MAX_INITRDS, Place, absolute,
    parent,
};
use super::filesystem::FileSystem;

/// Where they are, from the root of a volume on.
pub(super) const PATHS: [&str; 10] = [
    "/extlinux/extlinux.conf",
    "/boot/extlinux/extlinux.conf",
    "/extlinux.conf",
    "/syslinux/syslinux.cfg",
    "/boot/syslinux/syslinux.cfg",
    "/EFI/syslinux/syslinux.cfg",
    "/syslinux.cfg",
    "/isolinux/isolinux.cfg",
    "/boot/isolinux/isolinux.cfg",
    "/isolinux.cfg",
];
/// Files that include others.
const MAX_FILES: usize = 8;

#[derive(Debug, Default, PartialEq, Eq)]
struct Label {
    name: String,
    title: String,
    kernel: String,
    initrds: Vec<String>,
    append: Option<String>,
}

#[derive(Debug, Default)]
struct Configuration {
    default: String,
    append: String,
    labels: Vec<Label>,
    files: usize,
}

/// The entries of the configuration at `path` of a volume, the default first.
pub(super) fn entries((volume, files): (usize, &FileSystem<'_>), path: &str) -> Vec<BootEntry> {
    let mut configuration = Configuration::default();
    configuration.read(files, path);
    configuration.into_entries(volume, parent(path))
}

impl Configuration {
    fn read(&mut self, files: &FileSystem<'_>, path: &str) {
        if self.files >= MAX_FILES {
            return;
        }
        self.files += 1;
        let Ok(text) = files.read(path, MAX_CONFIGURATION) else { return };
        self.parse(&String::from_utf8_lossy(&text), &mut |this, included| {
            this.read(files, &absolute(parent(path), included));
        });
    }

    fn parse(&mut self, text: &str, include: &mut dyn FnMut(&mut Self, &str)) {
        for line in text.lines().map(str::trim) {
            let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let value = value.trim();
            match key.to_ascii_lowercase().as_str() {
                "default" => self.default = value.into(),
                "label" if self.labels.len() < MAX_ENTRIES => {
                    self.labels.push(Label { name: value.into(), ..Label::default() });
                }
                "include" => include(self, value),
                "menu" => self.menu(value),
                "append" if value.len() < MAX_COMMAND_LINE => match self.labels.last_mut() {
                    Some(label) => label.append = Some(value.into()),
                    None => self.append = value.into(),
                },
                key => {
                    if let Some(label) = self.labels.last_mut() {
                        label.set(key, value);
                    }
                }
            }
        }
    }

    fn menu(&mut self, value: &str) {
        let (key, rest) = value.split_once(char::is_whitespace).unwrap_or((value, ""));
        match (key.to_ascii_lowercase().as_str(), self.labels.last_mut()) {
            ("label", Some(label)) => label.title = rest.trim().replace('^', ""),
            ("default", Some(label)) => self.default = label.name.clone(),
            ("include", _) => {}
            _ => {}
        }
    }

    fn into_entries(self, volume: usize, directory: &str) -> Vec<BootEntry> {
        let Self { default, append, labels, .. } = self;
        let (chosen, others): (Vec<Label>, Vec<Label>) =
            labels.into_iter().partition(|label| label.name == default);
        let labels = chosen.into_iter().chain(others);
        let entry = |label: Label| label.into_entry(volume, directory, &append);
        labels.filter_map(entry).collect()
    }
}

impl Label {
    fn set(&mut self, key: &str, value: &str) {
        match key {
            // Words behind the kernel are arguments.
            "kernel" | "linux" => {
                let (kernel, rest) = value.split_once(char::is_whitespace).unwrap_or((value, ""));
                self.kernel = kernel.into();
                if !rest.trim().is_empty() && self.append.is_none() {
                    self.append = Some(rest.trim().into());
                }
            }
            "initrd" => self.initrds = split(value),
            _ => {}
        }
    }

    fn into_entry(self, volume: usize, directory: &str, append: &str) -> Option<BootEntry> {
        // Modules of syslinux, boot sectors and the like.
        let others = [".c32", ".com", ".cbt", ".bss", ".bin", ".0", ".img"];
        let kernel = self.kernel.to_ascii_lowercase();
        if kernel.is_empty() || others.iter().any(|ending| kernel.ends_with(ending)) {
            return None;
        }
        let command_line = match self.append.as_deref() {
            Some("-") => "",
            Some(own) => own,
            None => append,
        };
        let mut initrds = self.initrds;
        if initrds.is_empty() {
            let argument =
                command_line.split_whitespace().find_map(|word| word.strip_prefix("initrd="));
            initrds = argument.map(split).unwrap_or_default();
        }
        let place = |path: &str| Place { volume, path: absolute(directory, path) };
        let title = if self.title.is_empty() { self.name } else { self.title };
        Some(BootEntry {
            title,
            kernel: place(&self.kernel),
            initrds: initrds.iter().map(|path| place(path)).collect(),
            command_line: command_line.into(),
        })
    }
}

fn split(list: &str) -> Vec<String> {
    let paths = list.split(',').map(str::trim).filter(|path| !path.is_empty());
    paths.take(MAX_INITRDS).map(str::to_owned).collect()
}

/// Any text is a configuration of a bounded number of entries.
#[cfg(feature = "fuzz")]
pub(super) fn parse_any(text: &str) {
    let mut configuration = Configuration::default();
    configuration.parse(text, &mut |_, _| {});
    assert!(configuration.into_entries(0, "/extlinux").len() <= MAX_ENTRIES);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<BootEntry> {
        let mut configuration = Configuration::default();
        configuration.parse(text, &mut |this, name| {
            assert_eq!(name, "more.conf");
            this.parse("label more\nlinux /m\n", &mut |_, _| {});
        });
        configuration.into_entries(3, "/boot/extlinux")
    }

    #[test]
    fn default_label_comes_first() {
        let found = entries(
            "DEFAULT new\nTIMEOUT 50\nPROMPT 1\nAPPEND quiet\n# comment\nLABEL old\n  KERNEL ../vmlinuz-old\n\
             LABEL new\n  MENU LABEL ^New Linux\n  LINUX /boot/vmlinuz\n  INITRD a.img,/b.img\n\
             \tAPPEND root=/dev/vda1 ro\n FDT /x.dtb\nlabel hdt\n kernel hdt.c32\n",
        );
        assert_eq!(found.len(), 2);
        let [new, old] = &found[..] else { unreachable!() };
        assert_eq!(new.title, "New Linux");
        assert_eq!(new.kernel, Place { volume: 3, path: "/boot/vmlinuz".into() });
        let paths: Vec<&str> = new.initrds.iter().map(|place| place.path.as_str()).collect();
        assert_eq!(paths, ["/boot/extlinux/a.img", "/b.img"]);
        assert_eq!(new.command_line, "root=/dev/vda1 ro");
        assert_eq!(
            (old.kernel.path.as_str(), old.command_line.as_str()),
            ("/boot/vmlinuz-old", "quiet")
        );
    }

    #[test]
    fn initial_ram_disk_may_be_an_argument() {
        let found = entries("label l\nkernel /k\nappend initrd=/i.gz,/j.gz root=x\n");
        let paths: Vec<&str> = found[0].initrds.iter().map(|place| place.path.as_str()).collect();
        assert_eq!(paths, ["/i.gz", "/j.gz"]);
        assert_eq!(found[0].command_line, "initrd=/i.gz,/j.gz root=x");
    }

    #[test]
    fn other_files_are_included_and_menus_have_a_default() {
        let found = entries(
            "include more.conf\nlabel a\nlinux /a\nlabel b\nlinux /b one two\nmenu default\n",
        );
        let titles: Vec<&str> = found.iter().map(|entry| entry.title.as_str()).collect();
        assert_eq!(titles, ["b", "more", "a"]);
        assert_eq!(found[0].command_line, "one two");
    }
}
