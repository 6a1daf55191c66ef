/* The command line: commands, each followed by settings `name=number`. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include "types.h"

/* The next command at or after `text`: its first letter, or the closing zero. Settings before it are passed over. */
const char *next_command(const char *text);

/* The first letter after the word at `text`. */
const char *after_word(const char *text);

/* Is `word`, up to a space or the end, just `name`? */
int is_word(const char *word, const char *name);

/* The setting `name` of the command that starts at `command`, or `otherwise` where it is not given. */
u64 setting(const char *command, const char *name, u64 otherwise);

#endif
