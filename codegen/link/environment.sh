
# What the programs need of the environment; SKYCC_KEEP may name more. The rest, in which there may be secrets, would be
# sent to the other hosts unencrypted: mpiexec sends its whole environment, whatever its options say.
forget_environment() {
    for name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
        case $name in
        SKYCC_SITE_KEY) unset "$name" ;;
        PATH | HOME | USER | LOGNAME | LANG | LC_* | TZ | TMPDIR | XDG_RUNTIME_DIR | LD_LIBRARY_PATH) ;;
        OMP_* | GOMP_* | MPIR_* | MPICH_* | MPIEXEC_* | HYDRA_* | UCX_* | SKYCC_*) ;;
        SSH_AUTH_SOCK | PMI_* | PMIX_* | SLURM_* | SLURMD_*) ;;
        *) case " ${SKYCC_KEEP:-} " in *" $name "*) ;; *) unset "$name" ;; esac ;;
        esac
    done
}
