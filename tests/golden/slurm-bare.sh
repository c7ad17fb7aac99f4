#!/bin/bash
#SBATCH --job-name=collbench-RUN
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=1
#SBATCH --time=2:00:00
#SBATCH --no-requeue
#SBATCH --output=/lustre/collbench/collbench-RUN/job.log
#SBATCH --hint=nomultithread
#SBATCH --distribution=block
#SBATCH --exclusive
export PATH HOME=${HOME:-~} USER=${USER:-$(id -un)}  # which --export=NONE leaves out
cd /lustre/collbench/collbench-RUN || exit 72
fails() {
  code=$?; [ ${#BASH_SOURCE[@]} -gt 2 ] && return
  echo "setup in the site file: exit code $code from: $(sed -n "$1p" /lustre/collbench/collbench-RUN/job.sh)" >&2; exit 73
}
trap 'fails $LINENO' ERR
module load openmpi
trap - ERR; cd /lustre/collbench/collbench-RUN
scontrol show hostnames "$SLURM_JOB_NODELIST" > nodes.part && mv nodes.part nodes
export FIRST_NODE=$(head -n 1 nodes)
exec {never}<> <(:)  # a pipe in which nothing comes: a pause without a process
n=0
while [ ! -e end ]; do
  if [ -e step-$n ]; then
    { bash step-$n > log-$n 2>&1; echo $? > code-$n.part; mv code-$n.part code-$n; } &
    n=$((n + 1)) begun=$SECONDS alive=$SECONDS
  else
    look=0.1
    [ $((SECONDS - begun)) -lt 3 ] || { kill -0 $! && look=1; } 2> /dev/null
    read -r sign < driver
    [ "$sign" = "$last" ] || { last=$sign; alive=$SECONDS; }
    [ $((SECONDS - alive)) -lt 300 ] || exit 75
    read -r -t $look -u $never || :
  fi
done

# step 0: openmpi host, 4 ranks on 2 hosts
export OMP_NUM_THREADS=1
export COLLBENCH_OWN_VARIABLES=OMP_NUM_THREADS
export COLLBENCH_SHAPE='{"hosts":2,"each":2,"cores":1,"boxes":"none","crowded":false}'
export PRTE_MCA_plm_ssh_agent=collbench-relay
export OMPI_MCA_bml_base_verbose=20
export OMPI_MCA_btl_base_verbose=20
export OMPI_MCA_pml_base_verbose=10
export UCX_TLS=rc,sm
exec srun --job-name=collbench-RUN-0 --kill-on-bad-exit=1 --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=1 --mpi=pmix --export=ALL --hint=nomultithread --distribution=block \
  sh -c 'export PMIX_MCA_psec=native; [ "$SLURM_LOCALID" = 0 ] || unset OMPI_MCA_bml_base_verbose OMPI_MCA_btl_base_verbose OMPI_MCA_pml_base_verbose; exec "$@"' task /lustre/openmpi/bin/python -m collbench run /lustre/collbench/collbench-RUN/0/plan.json --out /lustre/collbench/collbench-RUN/0/out --style csv

# step 1: openmpi host, 4 ranks
export OMP_NUM_THREADS=1
export COLLBENCH_OWN_VARIABLES=OMP_NUM_THREADS
export COLLBENCH_SHAPE='{"hosts":1,"each":4,"cores":1,"boxes":"none","crowded":false}'
export PRTE_MCA_plm_ssh_agent=collbench-relay
export OMPI_MCA_bml_base_verbose=20
export OMPI_MCA_btl_base_verbose=20
export OMPI_MCA_pml_base_verbose=10
export UCX_TLS=rc,sm
exec srun --job-name=collbench-RUN-1 --kill-on-bad-exit=1 --nodes=1 --ntasks=4 --ntasks-per-node=4 --cpus-per-task=1 --mpi=pmix --export=ALL --hint=nomultithread --distribution=block \
  sh -c 'export PMIX_MCA_psec=native; [ "$SLURM_LOCALID" = 0 ] || unset OMPI_MCA_bml_base_verbose OMPI_MCA_btl_base_verbose OMPI_MCA_pml_base_verbose; exec "$@"' task /lustre/openmpi/bin/python -m collbench run /lustre/collbench/collbench-RUN/1/plan.json --out /lustre/collbench/collbench-RUN/1/out --style csv
