use super::*;
use crate::disk_boot::entry::Place;
use crate::disk_boot::partitions::testing::gpt;
use crate::disk_boot::testing::{Table, fat, with_volumes};

const ESP: u128 = 0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b;
const LINUX: u128 = 0x0fc63daf_8483_4772_8e79_3d69d8477de4;

/// What a configuration on a volume with these other files leads to.
fn with_files(configuration: &str, files: &[(&str, &[u8])]) -> Vec<BootEntry> {
    let path = "/boot/grub/grub.cfg";
    let files = [&[(path, configuration.as_bytes())], files].concat();
    with_volumes(&[fat(Table::Fat16, &files)], |volumes| entries(volumes, 0, path).0)
}

fn found(configuration: &str) -> Vec<BootEntry> {
    with_files(configuration, &[])
}

fn lines(entries: &[BootEntry]) -> Vec<String> {
    let line = |entry: &BootEntry| {
        let initrds: Vec<&str> = entry.initrds.iter().map(|place| place.path.as_str()).collect();
        format!(
            "{} {} [{}] {}",
            entry.title,
            entry.kernel.path,
            initrds.join(","),
            entry.command_line
        )
    };
    entries.iter().map(line).collect()
}

/// As Debian's update-grub writes it, with what does nothing left in.
const DEBIAN: &str = r#"
if [ -s $prefix/grubenv ]; then
  set have_grubenv=true
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="${saved_entry}"
fi
if [ x"${feature_menuentry_id}" = xy ]; then
  menuentry_id_option="--id"
else
  menuentry_id_option=""
fi
export menuentry_id_option
function savedefault {
  if [ -z "${boot_once}" ]; then
    saved_entry="${chosen}"
    save_env saved_entry
  fi
}
if [ x$feature_default_font_path = xy ] ; then
   font=unicode
else
insmod part_gpt
    font="/usr/share/grub/unicode.pf2"
fi
if loadfont $font ; then
  set gfxmode=auto
fi
menuentry 'Debian GNU/Linux' --class debian --class gnu-linux $menuentry_id_option 'gnulinux-simple-1' {
	load_video
	if [ x$grub_platform = xxen ]; then insmod xzio; insmod lzopio; fi
	set root='hd0,gpt1'
	if [ x$feature_platform_search_hint = xy ]; then
	  search --no-floppy --fs-uuid --set=root --hint-bios=hd0,gpt1 --hint-efi=hd0,gpt1  1234-ABCD
	else
	  search --no-floppy --fs-uuid --set=root 1234-ABCD
	fi
	echo	'Loading Linux 6.1.0-18-amd64 ...'
	linux	/boot/vmlinuz-6.1.0-18-amd64 root=UUID=1 ro  console=ttyS0 quiet
	initrd	/boot/microcode.img /boot/initrd.img-6.1.0-18-amd64
}
submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-1' {
	menuentry 'Debian GNU/Linux, with Linux 6.1.0-18-amd64' --class debian $menuentry_id_option 'gnulinux-18' {
		linux	/boot/vmlinuz-6.1.0-18-amd64 root=UUID=1 ro  console=ttyS0 quiet
		initrd	/boot/microcode.img /boot/initrd.img-6.1.0-18-amd64
	}
	menuentry 'Debian GNU/Linux, with Linux 6.1.0-17-amd64' --class debian $menuentry_id_option 'gnulinux-17' {
		linux	/boot/vmlinuz-6.1.0-17-amd64 root=UUID=1 ro
		initrd	/boot/initrd.img-6.1.0-17-amd64
	}
}
menuentry 'UEFI Firmware Settings' { fwsetup }
"#;

fn environment(lines: &str) -> Vec<u8> {
    let mut block = format!("# GRUB Environment Block\n{lines}").into_bytes();
    block.resize(1024, b'#');
    block
}

#[test]
fn debian_boots_its_first_entry() {
    let found = lines(&found(DEBIAN));
    assert_eq!(
        found[0],
        "Debian GNU/Linux /boot/vmlinuz-6.1.0-18-amd64 \
         [/boot/microcode.img,/boot/initrd.img-6.1.0-18-amd64] root=UUID=1 ro console=ttyS0 quiet"
    );
    // The first entry of the submenu differs by its title.
    assert_eq!(found.len(), 3);
}

#[test]
fn saved_and_one_time_entries_are_found_by_path() {
    for line in [
        "saved_entry=gnulinux-advanced-1>gnulinux-17\n",
        "next_entry=1>1\nsaved_entry=0\n",
        "saved_entry=Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux 6.1.0-17-amd64\n",
    ] {
        let found = with_files(DEBIAN, &[("/boot/grub/grubenv", &environment(line))]);
        assert_eq!(found[0].kernel.path, "/boot/vmlinuz-6.1.0-17-amd64", "{line}");
    }
    let found = with_files(DEBIAN, &[("/boot/grub/grubenv", &environment("saved_entry=gone\n"))]);
    assert_eq!(found[0].title, "Debian GNU/Linux");
}

#[test]
fn fedora_boots_what_the_specification_says_with_its_variables() {
    let configuration = "load_env -f ${prefix}/grubenv\nset default=\"${saved_entry}\"\n\
        search --no-floppy --fs-uuid --set=boot 1234-ABCD\nif [ -z \"$kernelopts\" ]; then\n\
        set kernelopts=\"root=fallback\"\nfi\ninsmod blscfg\nblscfg\n";
    let entry = |version: &str| {
        format!(
            "title Fedora ({version})\nversion {version}\nlinux /vmlinuz-{version}\n\
            initrd /initramfs-{version}.img $tuned_initrd\noptions $kernelopts quiet\ngrub_users $grub_users\n"
        )
    };
    let (old, new) = (entry("6.8.5"), entry("6.10.2"));
    let files: &[(&str, &[u8])] = &[
        ("/loader/entries/abc-6.8.5.conf", old.as_bytes()),
        ("/loader/entries/abc-6.10.2.conf", new.as_bytes()),
    ];
    let newest = "Fedora (6.10.2) /vmlinuz-6.10.2 [/initramfs-6.10.2.img]";
    assert_eq!(
        lines(&with_files(configuration, files))[0],
        format!("{newest} root=fallback quiet")
    );
    let block = environment("saved_entry=abc-6.8.5\nkernelopts=root=/dev/vda3 ro\n");
    let files = [files, &[("/boot/grub/grubenv", &block)]].concat();
    assert_eq!(
        lines(&with_files(configuration, &files))[0],
        "Fedora (6.8.5) /vmlinuz-6.8.5 [/initramfs-6.8.5.img] root=/dev/vda3 ro quiet"
    );
}

#[test]
fn small_configuration_of_the_efi_partition_leads_to_the_other() {
    let small = b"search.fs_uuid 1234-ABCD root hd0,gpt2\nset prefix=($root)'/boot/grub'\n\
        configfile $prefix/grub.cfg\nmenuentry never { linux /never }\n";
    let stub = fat(Table::Fat32, &[("/EFI/debian/grub.cfg", small)]);
    let mut stub = stub;
    stub[67..71].copy_from_slice(&0x1111_2222_u32.to_le_bytes());
    let root =
        fat(Table::Fat16, &[("/boot/grub/grub.cfg", b"menuentry A { linux /k a=\"b c\" }\n")]);
    let (first, second) = (64, 64 + stub.len() / 512);
    let end = second + root.len() / 512;
    let partitions =
        [(ESP, first as u64, second as u64 - 1), (LINUX, second as u64, end as u64 - 1)];
    let mut disk = gpt(512, end + 64, &partitions);
    disk[first * 512..second * 512].copy_from_slice(&stub);
    disk[second * 512..end * 512].copy_from_slice(&root);
    with_volumes(&[disk], |volumes| {
        assert_eq!((volumes.device(0), volumes.device(1)), ("hd0,gpt1".into(), "hd0,gpt2".into()));
        let (found, _) = entries(volumes, 0, "/EFI/debian/grub.cfg");
        let kernel = Place { volume: 1, path: "/k".into() };
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].kernel, found[0].command_line.as_str()), (&kernel, "\"a=b c\""));
    });
}

#[test]
fn entries_without_linux_are_told() {
    let path = "/boot/grub/grub.cfg";
    let text = b"menuentry Windows { chainloader /bootmgr }\nmenuentry L { linux /l; }\n";
    with_volumes(&[fat(Table::Fat16, &[(path, text)])], |volumes| {
        let (found, passed_over) = entries(volumes, 0, path);
        assert_eq!(lines(&found), ["L /l [] "]);
        assert_eq!(passed_over, ["\"Windows\" loads no Linux from a volume that can be read"]);
    });
}

#[test]
fn words_are_split_as_grub_splits_them() {
    let found = found(
        "set a='x  y'\nset e=\nset default=1\nmenuentry 0 { linux /0 $a \"$a\" p$a $e \"\" q$e\"r\" }\n\
         menuentry 1 { linux /1 ${a}z; }\n",
    );
    assert_eq!(lines(&found), ["1 /1 [] x yz", "0 /0 [] x y \"x  y\" px y  qr"]);
}

#[test]
fn endless_configurations_end() {
    for text in [
        "source /boot/grub/grub.cfg\n".repeat(100),
        "configfile /boot/grub/grub.cfg\n".into(),
        format!("set a=xxxxxxxx\n{}menuentry $a {{ linux $a; }}\n", "set a=\"$a$a\"\n".repeat(200)),
        format!("set a='x x x x'\n{}", "echo $a$a$a$a$a$a$a$a$a$a\nset a=\"$a $a\"\n".repeat(5000)),
        "submenu s { source /boot/grub/grub.cfg; }\n".repeat(20),
        "menuentry m { source /boot/grub/grub.cfg; linux /k; }\n".repeat(600),
    ] {
        assert!(found(&text).len() <= crate::disk_boot::entry::MAX_ENTRIES);
    }
}
