#!/bin/sh
# Submit the job of docs/examples/submit_job.py to Kubernetes, in cluster mode.
#   KUBERNETES=https://host:6443 IMAGE=registry.example/rove-spark:1 sh submit.sh --readings … --out …
here=$(dirname "$0")
exec spark-submit \
    --master "k8s://${KUBERNETES:?the address of its API}" \
    --deploy-mode cluster \
    --name rove-job \
    --conf spark.kubernetes.namespace=rove \
    --conf spark.kubernetes.authenticate.driver.serviceAccountName=spark \
    --conf spark.kubernetes.container.image="${IMAGE:?the image with Rove}" \
    --conf spark.kubernetes.driver.podTemplateFile="$here/pod.yaml" \
    --conf spark.kubernetes.driver.podTemplateContainerName=spark \
    --conf spark.kubernetes.executor.podTemplateFile="$here/pod.yaml" \
    --conf spark.kubernetes.executor.podTemplateContainerName=spark \
    --conf spark.executor.instances=2 \
    --conf spark.executor.memory=2g \
    --conf spark.executor.memoryOverhead=2g \
    "${JOB:-local:///data/submit_job.py}" "$@"
