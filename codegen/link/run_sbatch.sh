#!/bin/sh
# In this directory: sbatch run.sbatch --data FILE [options]
#SBATCH --job-name=skycc
#SBATCH --ntasks=@RANKS@
#SBATCH --cpus-per-task=@MOST_THREADS@
#@ if node_list
#SBATCH --nodelist=@NODE_LIST@
#@ end
#@ if site
#@ if apart
#@ else
#SBATCH --nodes=1
# mpiexec starts the ranks next to the gateway by itself, whatever it knows of Slurm.
export HYDRA_LAUNCHER=fork HYDRA_RMK=user
#@ end
# train starts and ends the site's gateway.
exec ./train "$@"
#@ else
if [ $# -gt 0 ]; then
    SKYCC_OPTIONS=$(printf '%s\n' "$@" '')
    export SKYCC_OPTIONS="$SKYCC_OPTIONS
"
fi
#@ if elsewhere
#@ include network
#@ include environment
forget_environment
exec srun --mpi=pmi2 --distribution=arbitrary --nodelist=@NODE_LIST@ --multi-prog run.conf
#@ else
exec srun --mpi=pmi2 --multi-prog run.conf
#@ end
#@ end
