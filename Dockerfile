# Holdfast in a container; how to use it: docs/how-to/run-in-a-container.md.
#
#   docker build --build-arg UID="$(id -u)" --tag holdfast .
#   docker run --rm --init --volume "$PWD":/work --volume holdfast:/var/lib/holdfast holdfast plan execute plan.yaml

ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
# A compiler for the module with the system calls; it does not come into the image that is used.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY requirements-runtime.lock ./
RUN python -m venv /opt/holdfast \
    && /opt/holdfast/bin/pip install --no-cache-dir --require-hashes --requirement requirements-runtime.lock
COPY pyproject.toml setup.py README.md LICENSE ./
COPY src ./src
RUN /opt/holdfast/bin/pip install --no-cache-dir --no-deps .

FROM python:${PYTHON}-slim
# Sandboxes of git resources are made with git.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/holdfast /opt/holdfast
# A normal user, with the number of the one whose project is mounted: applied files belong to them.
ARG UID=1000
RUN useradd --create-home --uid "${UID}" holdfast \
    && install --directory --owner=holdfast --mode=700 /var/lib/holdfast \
    && install --directory --owner=holdfast /work
ENV PATH="/opt/holdfast/bin:${PATH}" HOLDFAST_HOME=/var/lib/holdfast
# Sandboxes, checkpoints and records. They must outlive the container: without a volume of a name that you know, every
# checkpoint is gone with it.
VOLUME /var/lib/holdfast
USER holdfast
# Landlock, which confines the steps, needs no privilege and no option: the kernel is that of the host.
WORKDIR /work
ENTRYPOINT ["holdfast"]
CMD ["--help"]
