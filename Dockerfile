# One image for the operator and the agent.
#   docker build --build-arg BASE_IMAGE=python:3.11-slim-bookworm -t vgpu-operator:0.1.0 .
# Behind a package index of your own add --secret id=pip-conf,src=pip.conf and, for its certificate,
# --secret id=pip-ca,src=ca.crt with "cert = /run/secrets/pip-ca" in pip.conf. Neither gets into the image.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
RUN python3 -m venv /opt/vgpu
WORKDIR /src
COPY requirements/runtime.lock requirements/runtime.lock
RUN --mount=type=secret,id=pip-conf,target=/etc/pip.conf --mount=type=secret,id=pip-ca \
    /opt/vgpu/bin/pip install --no-cache-dir --require-hashes -r requirements/runtime.lock
# What builds the package is locked too, has an environment of its own and does not get into the image.
RUN python3 -m venv /opt/build
COPY requirements/build.lock requirements/build.lock
RUN --mount=type=secret,id=pip-conf,target=/etc/pip.conf --mount=type=secret,id=pip-ca \
    /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
RUN /opt/build/bin/pip wheel --no-build-isolation --no-deps --no-index --wheel-dir /dist . \
 && /opt/vgpu/bin/pip install --no-cache-dir --no-deps --no-index /dist/*.whl

FROM ${BASE_IMAGE}
COPY --from=build /opt/vgpu /opt/vgpu
# The operator runs as this user; the agent's DaemonSet asks for root, since device files and kubelet's sockets are root's.
RUN groupadd --gid 65532 vgpu && useradd --uid 65532 --gid 65532 --no-create-home --shell /usr/sbin/nologin vgpu
ENV PATH=/opt/vgpu/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 9443 8080
ENTRYPOINT ["vgpu-operator"]
