#!/bin/bash
#SBATCH --job-name=collbench-RUN
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=4
#SBATCH --time=2:00:00
#SBATCH --no-requeue
#SBATCH --output=/lustre/collbench/collbench-RUN/job.log
#SBATCH --gpus-per-node=2
#SBATCH --hint=nomultithread
#SBATCH --distribution=block
#SBATCH --exclusive
export PATH HOME=${HOME:-~} USER=${USER:-$(id -un)}  # which --export=NONE leaves out
cd /lustre/collbench/collbench-RUN || exit 72
scontrol show hostnames "$SLURM_JOB_NODELIST" > nodes.part && mv nodes.part nodes
export FIRST_NODE=$(head -n 1 nodes)

# step 0: openmpi multi files, 4 ranks on 2 hosts
export OMP_NUM_THREADS=1
export COLLBENCH_OWN_VARIABLES=OMP_NUM_THREADS
export COLLBENCH_SHAPE='{"hosts":2,"each":2,"cores":4,"boxes":"host","crowded":false}'
export PRTE_MCA_plm_ssh_agent=collbench-relay
export OMPI_MCA_bml_base_verbose=20
export OMPI_MCA_btl_base_verbose=20
export OMPI_MCA_pml_base_verbose=10
exec srun --job-name=collbench-RUN-0 --kill-on-bad-exit=1 --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=4 --mpi=pmix --export=ALL --hint=nomultithread --distribution=block --gpu-bind=none --container-image=/img/openmpi --container-mounts=/lustre/collbench:/lustre/collbench --container-name=collbench-openmpi --no-container-mount-home \
  sh -c 'export PMIX_MCA_psec=native; [ "$SLURM_LOCALID" = 0 ] || unset OMPI_MCA_bml_base_verbose OMPI_MCA_btl_base_verbose OMPI_MCA_pml_base_verbose; export COLLBENCH_CONTAINER=c$SLURM_NODEID; exec "$@"' task python -m collbench run /lustre/collbench/collbench-RUN/0/plan.json --out /lustre/collbench/collbench-RUN/0/out --style csv
