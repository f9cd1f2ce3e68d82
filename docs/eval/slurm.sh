#!/bin/bash
# An evaluation spread over an array of eight tasks:
#
#   work=/scratch/me sbatch docs/eval/slurm.sh
#   gollm eval merge -o /scratch/me/ruler /scratch/me/shard-*
#
# A task that was preempted is requeued and goes on where it was.
#SBATCH --job-name=gollm-ruler
#SBATCH --array=0-7
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --time=12:00:00
#SBATCH --requeue
set -eu
: "${work:?the folder that has model.gguf and data, and takes the answers}"
exec gollm eval ruler -m "$work/model.gguf" --data "$work/data" \
	--tasks all --lengths 4k,8k,16k -n 500 \
	--attn dense --attn 'sketchwalk(density=0.2)' -t "$SLURM_CPUS_PER_TASK" \
	--shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" -o "$work/shard-$SLURM_ARRAY_TASK_ID"
