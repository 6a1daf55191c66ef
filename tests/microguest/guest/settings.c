#include "settings.h"

static int ends(char letter)
{
	return letter == ' ' || letter == '\n' || letter == 0;
}

const char *after_word(const char *text)
{
	while (!ends(*text))
		text++;
	return text;
}

static const char *next_word(const char *text)
{
	while (*text == ' ' || *text == '\n')
		text++;
	return text;
}

/* A word with `=` in it is a setting. */
static int is_setting(const char *word)
{
	while (!ends(*word) && *word != '=')
		word++;
	return *word == '=';
}

const char *next_command(const char *text)
{
	for (text = next_word(text); is_setting(text); text = next_word(after_word(text)))
		;
	return text;
}

int is_word(const char *word, const char *name)
{
	while (*name && *word == *name)
		word++, name++;
	return *name == 0 && ends(*word);
}

static u64 number(const char *text)
{
	u64 base = 10, value = 0;

	if (text[0] == '0' && text[1] == 'x') {
		base = 16;
		text += 2;
	}
	for (; !ends(*text); text++) {
		u8 digit = *text <= '9' ? *text - '0' : (*text | 0x20) - 'a' + 10;
		value = value * base + digit;
	}
	return value;
}

u64 setting(const char *command, const char *name, u64 otherwise)
{
	const char *word = next_word(after_word(command));

	for (; is_setting(word); word = next_word(after_word(word))) {
		const char *at = word, *letter = name;

		while (*letter && *at == *letter)
			at++, letter++;
		if (*letter == 0 && *at == '=')
			return number(at + 1);
	}
	return otherwise;
}
