"""The manifests for Kubernetes name each other rightly, and fit its schemas where these are there.

The schemas (`pip install kubernetes-validate`) are 117 MB and so none of our dependencies.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "examples" / "kubernetes"


def manifests(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


def test_what_is_named_is_there() -> None:
    by_kind = {one["kind"]: one for one in manifests("spark.yaml")}
    (pod,) = manifests("pod.yaml")
    namespace = by_kind["Namespace"]["metadata"]["name"]
    for kind, one in by_kind.items():
        assert kind == "Namespace" or one["metadata"]["namespace"] == namespace
    account, role = by_kind["ServiceAccount"], by_kind["Role"]
    (subject,) = by_kind["RoleBinding"]["subjects"]
    assert subject["name"] == account["metadata"]["name"]
    assert subject["namespace"] == namespace
    assert by_kind["RoleBinding"]["roleRef"]["name"] == role["metadata"]["name"]
    volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
    (container,) = pod["spec"]["containers"]
    assert {one["name"] for one in container["volumeMounts"]} == set(volumes)
    claim = volumes["data"]["persistentVolumeClaim"]["claimName"]
    assert claim == by_kind["PersistentVolumeClaim"]["metadata"]["name"]
    script = (FOLDER / "submit.sh").read_text(encoding="utf-8")
    settings = dict(re.findall(r"--conf spark\.(\S+?)=(\S+)", script))
    assert settings["kubernetes.namespace"] == namespace
    assert settings["kubernetes.authenticate.driver.serviceAccountName"] == subject["name"]
    for who in ("driver", "executor"):
        assert settings[f"kubernetes.{who}.podTemplateFile"] == '"$here/pod.yaml"'
        assert settings[f"kubernetes.{who}.podTemplateContainerName"] == container["name"]


def test_they_fit_the_schemas() -> None:
    schemas = pytest.importorskip("kubernetes_validate")
    for one in manifests("spark.yaml") + manifests("pod.yaml"):
        schemas.validate(one, schemas.latest_version(), strict=True)
