/* Each command gets the command line from its own name on. */
#ifndef COMMANDS_H
#define COMMANDS_H

void command_write(const char *command);
void command_fill(const char *command);
void command_check(const char *command);
void command_count(const char *command);
void command_doorbell(const char *command);
void command_read(const char *command);
void command_typed(const char *command);
void command_interrupts(const char *command);
void command_timer(const char *command);
void command_disk(const char *command);
void command_balloon(const char *command);
void command_console(const char *command);
void command_entropy(const char *command);
void command_hostile(const char *command);
void command_network(const char *command);
void command_filters(const char *command);
void command_streams(const char *command);
void command_vsock(const char *command);
void command_processors(const char *command);
void command_loop(const char *command);
void command_undefined(const char *command);
void command_fault(const char *command);
void command_shutdown(const char *command);

#endif
