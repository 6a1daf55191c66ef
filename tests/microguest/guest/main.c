/* From the entry to the last command. */

#include "commands.h"
#include "report.h"
#include "settings.h"
#include "traps.h"

/* Xen's struct hvm_start_info. */
#define START_INFO_MAGIC 0x336ec578
#define START_INFO_COMMAND_LINE 24

/* Linux' struct boot_params (Documentation/arch/x86/zero-page.rst). */
#define BOOT_PARAMS_HEADER_MAGIC 0x202
#define HEADER_MAGIC 0x53726448 /* "HdrS" */
#define BOOT_PARAMS_COMMAND_LINE 0x228

static const struct {
	const char *name;
	void (*run)(const char *command);
} commands[] = {
	{"write", command_write},
	{"fill", command_fill},
	{"check", command_check},
	{"count", command_count},
	{"doorbell", command_doorbell},
	{"read", command_read},
	{"typed", command_typed},
	{"interrupts", command_interrupts},
	{"timer", command_timer},
	{"disk", command_disk},
	{"balloon", command_balloon},
	{"console", command_console},
	{"entropy", command_entropy},
	{"hostile", command_hostile},
	{"network", command_network},
	{"filters", command_filters},
	{"streams", command_streams},
	{"vsock", command_vsock},
	{"processors", command_processors},
	{"loop", command_loop},
	{"undefined", command_undefined},
	{"fault", command_fault},
	{"shutdown", command_shutdown},
};

void guest_start(const u8 *information, u32 entry);

static u32 word(const u8 *information, u64 offset)
{
	return *(const u32 *)(information + offset);
}

static void expect(u32 found, u32 magic)
{
	if (found == magic)
		return;
	report(EVENT_BAD_BOOT_INFORMATION, found);
	halt();
}

static const char *command_line_of(const u8 *information, u32 entry)
{
	if (entry == ENTRY_PVH) {
		expect(word(information, 0), START_INFO_MAGIC);
		return *(const char *const *)(information + START_INFO_COMMAND_LINE);
	}
	expect(word(information, BOOT_PARAMS_HEADER_MAGIC), HEADER_MAGIC);
	return (const char *)(u64)word(information, BOOT_PARAMS_COMMAND_LINE);
}

static int run(const char *command)
{
	if (is_word(command, "hello") || is_word(command, "quiet"))
		return 1;
	for (u64 i = 0; i < sizeof commands / sizeof *commands; i++) {
		if (is_word(command, commands[i].name)) {
			commands[i].run(command);
			return 1;
		}
	}
	return 0;
}

static void guest_main(const char *command_line)
{
	u64 done = 0;
	const char *command = next_command(command_line);

	while (*command) {
		if (!run(command)) {
			report(EVENT_UNKNOWN_COMMAND, command - command_line);
			halt();
		}
		done++;
		command = next_command(after_word(command));
	}
	report(EVENT_DONE, done);
	halt();
}

void guest_start(const u8 *information, u32 entry)
{
	const char *command_line;

	catch_traps();
	command_line = command_line_of(information, entry);
	/* Each letter may be an exit. */
	if (!is_word(next_command(command_line), "quiet")) {
		say(entry == ENTRY_PVH ? "microguest by PVH entry: " : "microguest by 64-bit entry: ");
		say(command_line);
		say("\n");
	}
	report(EVENT_HELLO, entry);
	guest_main(command_line);
}
