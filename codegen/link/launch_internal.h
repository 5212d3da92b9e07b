/* Parts of the script `train` that only a site among others has (launch_site.c). */
#ifndef CODEGEN_LINK_LAUNCH_INTERNAL_H
#define CODEGEN_LINK_LAUNCH_INTERNAL_H

/* Where the script reads what follows an option, and where it reads options. */
extern const char launch_site_expected[], launch_site_options[];
/* Before the launcher is set up: checks, and how the gateway is started and ended. */
extern const char launch_site_gateway[];
/* Before and after every run of the launcher. */
extern const char launch_site_begin[], launch_site_end[];

#endif
