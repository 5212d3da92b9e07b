#include <errno.h>
#include <stdarg.h>
#include <unistd.h>

#include "base/text.h"
#include "runtime/wire/gateway_parts.h"

void wire_gateway_say(const WireGateway *gateway, const char *format, ...)
{
    FREED_WITH(buffer_free) Buffer line = {0};
    va_list arguments;
    va_start(arguments, format);
    text_format(&line, "skycc: site %s: ", gateway->file->sites[gateway->file->site].name);
    text_format_va(&line, format, arguments);
    va_end(arguments);
    buffer_append(&line, "\n", 1);
    if (write(STDERR_FILENO, line.bytes, line.size) < 0) errno = 0; /* nobody listens */
}
