module @jit_f attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["dp"=2, "tp"=2]> {stablehlo.mesh = {axes = [{name = "dp", size = 2 : i64}, {name = "tp", size = 2 : i64}]}}
  func.func public @main(%arg0: tensor<64x128xf32>, %arg1: tensor<128x64xf32>, %arg2: tensor<32x64xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<32x64xf32> {jax.result_info = "result[1]"}, tensor<32xf32> {jax.result_info = "result[2]"}) {
    %0:3 = sdy.manual_computation(%arg0, %arg1, %arg2) in_shardings=[<@mesh, [{}, {"tp"}]>, <@mesh, [{"tp"}, {}]>, <@mesh, [{"dp"}, {}]>] out_shardings=[<@mesh, []>, <@mesh, [{"dp"}, {}]>, <@mesh, [{"dp"}]>] manual_axes={"dp", "tp"} (%arg3: tensor<64x64xf32>, %arg4: tensor<64x64xf32>, %arg5: tensor<16x64xf32>) {
      %1 = stablehlo.dot_general %arg5, %arg3, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x64xf32>, tensor<64x64xf32>) -> tensor<16x64xf32>
      %2 = func.call @relu(%1) : (tensor<16x64xf32>) -> tensor<16x64xf32>
      %3 = stablehlo.dot_general %2, %arg4, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x64xf32>, tensor<64x64xf32>) -> tensor<16x64xf32>
      %4 = "stablehlo.all_reduce"(%3) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
      ^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
        %15 = stablehlo.add %arg6, %arg7 : tensor<f32>
        stablehlo.return %15 : tensor<f32>
      }) : (tensor<16x64xf32>) -> tensor<16x64xf32>
      %5 = stablehlo.multiply %4, %4 : tensor<16x64xf32>
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %6 = stablehlo.reduce(%5 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x64xf32>, tensor<f32>) -> tensor<f32>
      %7 = "stablehlo.all_reduce"(%6) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
      ^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
        %15 = stablehlo.add %arg6, %arg7 : tensor<f32>
        stablehlo.return %15 : tensor<f32>
      }) : (tensor<f32>) -> tensor<f32>
      %8 = "stablehlo.all_gather"(%arg5) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> : (tensor<16x64xf32>) -> tensor<32x64xf32>
      %9 = "stablehlo.reduce_scatter"(%8) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
      ^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
        %15 = stablehlo.add %arg6, %arg7 : tensor<f32>
        stablehlo.return %15 : tensor<f32>
      }) : (tensor<32x64xf32>) -> tensor<16x64xf32>
      %10 = "stablehlo.all_to_all"(%9) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, concat_dimension = 0 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, split_count = 2 : i64, split_dimension = 0 : i64}> : (tensor<16x64xf32>) -> tensor<16x64xf32>
      %c = stablehlo.constant dense<0> : tensor<i32>
      %11:2 = stablehlo.while(%iterArg = %c, %iterArg_1 = %10) : tensor<i32>, tensor<16x64xf32>
      cond {
        %c_2 = stablehlo.constant dense<5> : tensor<i32>
        %15 = stablehlo.compare LT, %iterArg, %c_2, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %15 : tensor<i1>
      } do {
        %15 = func.call @closed_call(%iterArg_1) : (tensor<16x64xf32>) -> tensor<16x64xf32>
        %c_2 = stablehlo.constant dense<1> : tensor<i32>
        %16 = stablehlo.add %iterArg, %c_2 : tensor<i32>
        stablehlo.return %16, %15 : tensor<i32>, tensor<16x64xf32>
      }
      %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %12 = stablehlo.compare GT, %7, %cst_0, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %13 = stablehlo.convert %12 : (tensor<i1>) -> tensor<i32>
      %14 = "stablehlo.case"(%13) ({
        %15 = stablehlo.transpose %11#1, dims = [1, 0] : (tensor<16x64xf32>) -> tensor<64x16xf32>
        %16 = stablehlo.dot_general %11#1, %15, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x64xf32>, tensor<64x16xf32>) -> tensor<16x16xf32>
        %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
        %17 = stablehlo.reduce(%16 init: %cst_1) applies stablehlo.add across dimensions = [1] : (tensor<16x16xf32>, tensor<f32>) -> tensor<16xf32>
        stablehlo.return %17 : tensor<16xf32>
      }, {
        %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
        %15 = stablehlo.reduce(%11#1 init: %cst_1) applies stablehlo.add across dimensions = [1] : (tensor<16x64xf32>, tensor<f32>) -> tensor<16xf32>
        stablehlo.return %15 : tensor<16xf32>
      }) : (tensor<i32>) -> tensor<16xf32>
      sdy.return %7, %11#1, %14 : tensor<f32>, tensor<16x64xf32>, tensor<16xf32>
    } : (tensor<64x128xf32>, tensor<128x64xf32>, tensor<32x64xf32>) -> (tensor<f32>, tensor<32x64xf32>, tensor<32xf32>)
    return %0#0, %0#1, %0#2 : tensor<f32>, tensor<32x64xf32>, tensor<32xf32>
  }
  func.func private @relu(%arg0: tensor<16x64xf32>) -> tensor<16x64xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<16x64xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<16x64xf32>
    return %1 : tensor<16x64xf32>
  }
  func.func private @closed_call(%arg0: tensor<16x64xf32>) -> tensor<16x64xf32> {
    %cst = stablehlo.constant dense<1.500000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<16x64xf32>
    %1 = stablehlo.multiply %arg0, %0 : tensor<16x64xf32>
    %2 = "stablehlo.collective_permute"(%1) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, source_target_pairs = dense<[[0, 2], [2, 0], [1, 3], [3, 1]]> : tensor<4x2xi64>}> : (tensor<16x64xf32>) -> tensor<16x64xf32>
    return %2 : tensor<16x64xf32>
  }
}
